"""The rules of autograd (rules.txt), one test function or more for each, named by the rule's id."""
