"""Stock ticker: the latest price of each symbol."""
