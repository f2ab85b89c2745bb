"""The floor of the engine: modules that know no op and import nothing above them."""
