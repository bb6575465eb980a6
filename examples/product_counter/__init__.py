"""Product counter: the Processor API, with a state store and a schedule."""
