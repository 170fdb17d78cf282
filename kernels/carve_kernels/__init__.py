"""EXL3 kernels: reference, builds, registry and desk.

Named so because a package called ``kernels`` would shadow Hugging Face's.
"""
