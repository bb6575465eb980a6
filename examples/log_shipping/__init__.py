"""Log shipping: plain producers and consumer groups, without a topology."""
