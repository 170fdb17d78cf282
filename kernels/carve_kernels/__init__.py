"""EXL3 kernels: reference, builds, registry and desk. (Named so because ``kernels`` would shadow Hugging Face's package.)"""
