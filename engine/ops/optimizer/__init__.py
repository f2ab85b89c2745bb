"""Steps of optimizers as one kernel each, in generated code and on a GPU; the updates are in `engine/optim`."""
