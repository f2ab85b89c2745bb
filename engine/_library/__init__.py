"""What stands behind `torch.library`: schemas, the table of operators, custom operators.

Packages reach for some of its modules by name (`torch._library.infer_schema`, `custom_ops`, `utils`).
"""
