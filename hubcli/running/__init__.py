"""Repository code at work in this process: imported in isolation, called, checked, profiled."""
