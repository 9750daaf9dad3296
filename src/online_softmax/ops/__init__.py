"""The operations, one folder each: api (what users call), reference, cpu and cuda (what runs), torch_op (autograd)."""
