"""EXL3, the trellis-coded weight format, as a reference that can be read.

A linear layer maps ``x [rows, in]`` to ``y [rows, out]``. EXL3 stores its matrix rotated and coded:

1. ``codebook``: a 16-bit state becomes one half-precision number by three integer instructions;
2. ``trellis``: 256 states share ``256 * K`` bits, each state overlapping its neighbour by ``16 - K`` bits;
3. ``tile``: the 256 numbers of a bitstream are one 16 x 16 tile of the matrix, in a tensor core's register order;
4. ``hadamard``: the matrix lives in a rotated basis, undone by Hadamard transforms over blocks of 128;
5. ``linear``: sign and scale vectors (``suh`` for inputs, ``svh`` for outputs) complete the layer;
6. ``pack_format``: how the tensors are named and typed in a safetensors file;
7. ``quantise``: the way back, a search for the states that come nearest to given weights.

Everything but ``quantise`` is pure numpy. ``golden`` holds the cases by which this reference was compared with
exllamav3 1.4.5 on a GPU, bit by bit.
"""
