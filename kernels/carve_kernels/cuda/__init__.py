"""The kernels on the GPU: builds, the ctypes view and torch operators. Only ``ops`` imports torch."""
