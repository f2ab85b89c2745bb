"""TorchScript archives: read, checked, run, shown as graphs and written."""
