/* CRC-32 as zlib computes it, with carry-less multiplication.
 *
 * A block of the message can be replaced by a multiple of it further behind: x^n times a block is
 * congruent to (x^n modulo the polynomial) times the block. So wide blocks are folded onto the ones
 * that follow until one is left, whose checksum a table computes. Bits are reflected, as in zlib.
 */
#include "core.h"

#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 8 : __GNUC__ >= 9)
#define WITH_MULTIPLICATION
#include <immintrin.h>
#endif

#define POLYNOMIAL 0xEDB88320u

static uint32_t table[256];

static uint32_t
by_table(uint32_t sum, const unsigned char *data, Py_ssize_t size)
{
    for (const unsigned char *end = data + size; data < end; data++)
        sum = (sum >> 8) ^ table[(sum ^ *data) & 0xFF];
    return sum;
}

#ifdef WITH_MULTIPLICATION
enum { NARROW = 16, LANES = 4, WIDE = 32 };

static int is_narrow, is_wide;
/* The factors for the lower and the upper half of a block that moves by one block, by the lanes of
 * the narrow loop, and by those of the wide loop. */
static uint64_t one_block[2], narrow_lanes[2], wide_lanes[2];

static uint64_t
power_of_x(int exponent)
{
    uint32_t power = 0x80000000u;
    for (; exponent > 0; exponent--)
        power = (power >> 1) ^ (power & 1 ? POLYNOMIAL : 0);
    return (uint64_t)power << 1;
}

static void
set_factors(uint64_t *factors, int bytes)
{
    factors[0] = power_of_x(8 * bytes + 32);
    factors[1] = power_of_x(8 * bytes - 32);
}

__attribute__((target("pclmul,sse2"))) static inline __m128i
fold(__m128i block, __m128i factors, __m128i next)
{
    __m128i lower = _mm_clmulepi64_si128(block, factors, 0x00);
    __m128i upper = _mm_clmulepi64_si128(block, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(lower, upper), next);
}

__attribute__((target("pclmul,sse2"))) static uint32_t
by_narrow_blocks(uint32_t sum, const unsigned char *data, Py_ssize_t size)
{
    const __m128i *blocks = (const __m128i *)data;
    const __m128i *end = blocks + size / NARROW;
    __m128i by_lanes = _mm_loadu_si128((const __m128i *)narrow_lanes);
    __m128i by_one = _mm_loadu_si128((const __m128i *)one_block);
    __m128i lanes[LANES];
    for (int lane = 0; lane < LANES; lane++)
        lanes[lane] = _mm_loadu_si128(blocks++);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)sum));
    for (; end - blocks >= LANES; blocks += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] = fold(lanes[lane], by_lanes, _mm_loadu_si128(blocks + lane));
    __m128i last = lanes[0];
    for (int lane = 1; lane < LANES; lane++)
        last = fold(last, by_one, lanes[lane]);
    for (; blocks < end; blocks++)
        last = fold(last, by_one, _mm_loadu_si128(blocks));
    unsigned char rest[NARROW];
    _mm_storeu_si128((__m128i *)rest, last);
    sum = by_table(0, rest, NARROW);
    return by_table(sum, (const unsigned char *)blocks, size % NARROW);
}

__attribute__((target("vpclmulqdq,pclmul,avx2"))) static uint32_t
by_wide_blocks(uint32_t sum, const unsigned char *data, Py_ssize_t size)
{
    const __m256i *blocks = (const __m256i *)data;
    const __m256i *end = blocks + size / WIDE;
    __m256i factors = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)wide_lanes));
    __m256i lanes[LANES];
    for (int lane = 0; lane < LANES; lane++)
        lanes[lane] = _mm256_loadu_si256(blocks++);
    lanes[0] = _mm256_xor_si256(
        lanes[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)sum)));
    for (; end - blocks >= LANES; blocks += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            __m256i lower = _mm256_clmulepi64_epi128(lanes[lane], factors, 0x00);
            __m256i upper = _mm256_clmulepi64_epi128(lanes[lane], factors, 0x11);
            lanes[lane] = _mm256_xor_si256(
                _mm256_xor_si256(lower, upper), _mm256_loadu_si256(blocks + lane));
        }
    unsigned char rest[LANES * WIDE];
    for (int lane = 0; lane < LANES; lane++)
        _mm256_storeu_si256((__m256i *)rest + lane, lanes[lane]);
    sum = by_narrow_blocks(0, rest, sizeof(rest));
    const unsigned char *behind = (const unsigned char *)blocks;
    size -= behind - data;
    return size < LANES * NARROW ? by_table(sum, behind, size)
                                 : by_narrow_blocks(sum, behind, size);
}
#endif

static uint32_t
update(uint32_t sum, const unsigned char *data, Py_ssize_t size)
{
#ifdef WITH_MULTIPLICATION
    if (is_wide && size >= LANES * WIDE)
        return by_wide_blocks(sum, data, size);
    if (is_narrow && size >= LANES * NARROW)
        return by_narrow_blocks(sum, data, size);
#endif
    return by_table(sum, data, size);
}

/* Not named crc32, which is a function of zlib. */
PyObject *
crc32_of(PyObject *module, PyObject *args)
{
    Py_buffer data;
    unsigned int start;
    if (!PyArg_ParseTuple(args, "y*I:crc32", &data, &start))
        return NULL;
    uint32_t sum = ~update(~(uint32_t)start, data.buf, data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(sum);
}

/* HAS_FAST_CRC32: the processor has the instruction. Without it, zlib is faster. */
int
init_crc(PyObject *module)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        table[byte] = byte;
        for (int bit = 0; bit < 8; bit++)
            table[byte] = (table[byte] >> 1) ^ (table[byte] & 1 ? POLYNOMIAL : 0);
    }
    int is_fast = 0;
#ifdef WITH_MULTIPLICATION
    __builtin_cpu_init();
    is_narrow = is_fast = __builtin_cpu_supports("pclmul") != 0;
    is_wide = is_narrow && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
    set_factors(one_block, NARROW);
    set_factors(narrow_lanes, LANES * NARROW);
    set_factors(wide_lanes, LANES * WIDE);
#endif
    return PyModule_AddObjectRef(module, "HAS_FAST_CRC32", is_fast ? Py_True : Py_False);
}
