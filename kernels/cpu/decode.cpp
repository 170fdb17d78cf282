/* Decoding alone, for tests (bit by bit against the reference) and for the decode rate. Not a variant to serve. */
#define CARVE_NAME "decode"
#define CARVE_ADMIT(call) CARVE_DECLINE_NOT_READY

#ifdef CARVE_ENTRY
#include "exports.h"

extern "C" {
int carve_decode_avx512(const carve_matrix*, float*, int);
int carve_decode_avx2(const carve_matrix*, float*, int);
int carve_decode_scalar(const carve_matrix*, float*, int);
}

/* out [in, out]: the coded matrix in the rotated basis. repeats > 0: instead decode everything so many times and write
 * only one sum (out [1]), at the speed at which a kernel decodes. */
CARVE_EXPORT int carve_decode(const carve_matrix* m, float* out, int repeats) {
  switch (isa) {
    case AVX512: return carve_decode_avx512(m, out, repeats);
    case AVX2: return carve_decode_avx2(m, out, repeats);
    case SCALAR: return carve_decode_scalar(m, out, repeats);
    default: return CARVE_DECLINE_PROCESSOR;
  }
}
#else
#include "routed.h"


extern "C" int CARVE_FORWARD(const carve_moe_call*) { return CARVE_DECLINE_NOT_READY; }

extern "C" int CARVE_DECODE(const carve_matrix* matrix, float* out, int repeats) {
  const carve_matrix& m = *matrix;
  const int status = check_matrix(m, m.in_features, m.out_features);
  if (status) return status;
  alignas(64) float w[CHUNK_TILES * TILE_WEIGHTS];
  const decode_function decode = decoder(m.bits, m.codebook);
  const size_t stride = tile_words(m.bits) * (size_t)(m.out_features / TILE);
  const int row_tiles = m.in_features / TILE, column_tiles = m.out_features / TILE;
  float sum = 0;
  for (int turn = 0; turn < (repeats ? repeats : 1); ++turn)
    for (int column = 0; column < column_tiles; ++column)
      for (int start = 0; start < row_tiles; start += CHUNK_TILES) {
        const int tiles = row_tiles - start < CHUNK_TILES ? row_tiles - start : CHUNK_TILES;
        decode(tile_at(m, start, column), stride, tiles, w);
        if (repeats) {
          sum += w[turn % TILE_WEIGHTS];
          continue;
        }
        for (int tile = 0; tile < tiles; ++tile)
          for (int i = 0; i < 16; ++i)
            for (int p = 0; p < 16; ++p)
              out[(size_t)((start + tile) * TILE + kernel_row(i & 1, p & 7)) * m.out_features + column * TILE + i / 2 +
                  8 * (p >> 3)] = w[tile * TILE_WEIGHTS + 16 * i + p];
      }
  if (repeats) *out = sum;
  return CARVE_OK;
}
#endif
