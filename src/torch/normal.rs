//! Uniform numbers turned into normal ones, 16 at a time, as PyTorch does with AVX2: Box–Muller with the
//! logarithm, sine and cosine of Cephes in single precision; and as it does without, with those of the C library.

#![allow(
    clippy::inline_always,
    reason = "what is not inlined into `Arch::dispatch` is compiled without the processor's fma"
)]

use std::f32::consts::{FRAC_1_PI, FRAC_1_SQRT_2, TAU};

/// Elements that `torch.randn` transforms at a time (`NormalFill16`), and the length from which on it
/// does.
pub const NORMAL_BLOCK: usize = 16;

/// Turns every full block of uniform numbers into standard normal ones.
#[inline(always)]
pub fn normal_blocks(values: &mut [f32]) {
    let (blocks, _) = values.as_chunks_mut::<NORMAL_BLOCK>();
    for block in blocks {
        normal_block(block);
    }
}

/// The same as PyTorch does it without AVX2 (`normal_fill_16<scalar_t>` in `DistributionTemplates.h`).
pub fn scalar_normal_blocks(values: &mut [f32]) {
    let (blocks, _) = values.as_chunks_mut::<NORMAL_BLOCK>();
    for block in blocks {
        let (first, second) = block.split_at_mut(NORMAL_BLOCK / 2);
        for (first, second) in first.iter_mut().zip(second) {
            let radius = (-2.0 * (1.0 - *first).ln()).sqrt();
            #[allow(clippy::cast_possible_truncation, reason = "a double times a float is rounded")]
            let theta = (std::f64::consts::TAU * f64::from(*second)) as f32;
            *first = radius * theta.cos() + 0.0;
            *second = radius * theta.sin() + 0.0;
        }
    }
}

/// Box–Muller on a block of uniform numbers (`NormalFill16<float>`): the first half gives the radii and
/// takes the cosines, the second half gives the angles and takes the sines.
#[inline(always)]
fn normal_block(block: &mut [f32; NORMAL_BLOCK]) {
    let (first, second) = block.split_at_mut(NORMAL_BLOCK / 2);
    for (first, second) in first.iter_mut().zip(second) {
        let radius = (-2.0 * ln(1.0 - *first)).sqrt();
        let (sin, cos) = sin_cos(TAU * *second);
        // Adding the mean, 0, turns −0 into +0: ln 1 comes out as +0, and the radius as −0.
        *first = radius * cos + 0.0;
        *second = radius * sin + 0.0;
    }
}

/// The natural logarithm of a positive normal number: Cephes' `logf`, the way `log256_ps` in
/// `ATen/native/cpu/avx_mathfun.h` computes it once the compiler has fused its products and sums.
#[inline(always)]
fn ln(x: f32) -> f32 {
    /// `cephes_log_p0` to `cephes_log_p8`: the polynomial for ln(1 + m) beyond m − m²/2, the highest
    /// power first.
    #[allow(clippy::excessive_precision, reason = "the digits of Cephes")]
    const POLYNOMIAL: [f32; 9] = [
        7.037_683_629_2e-2,
        -1.151_461_031_0e-1,
        1.167_699_874_0e-1,
        -1.242_014_084_6e-1,
        1.424_932_278_7e-1,
        -1.666_805_766_5e-1,
        2.000_071_476_5e-1,
        -2.499_999_399_3e-1,
        3.333_333_117_4e-1,
    ];
    /// `cephes_log_q2` and `cephes_log_q1`: ln 2 in two parts, the first with so few digits that its
    /// product with an exponent is exact.
    #[allow(clippy::excessive_precision, reason = "the digits of Cephes")]
    const LN_2: [f32; 2] = [0.693_359_375, -2.121_944_40e-4];
    /// The exponent bits of the numbers in [0.5, 1).
    const HALF_EXPONENT: i32 = 126;

    // x = mantissa · 2^exponent, the mantissa in [0.5, 1) at first, then in [√½, √2); m is 1 less.
    let bits = x.to_bits();
    let mantissa = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    let is_low = mantissa < FRAC_1_SQRT_2;
    let m = (mantissa - 1.0) + if is_low { mantissa } else { 0.0 };
    let exponent = (bits >> 23).cast_signed() - HALF_EXPONENT - i32::from(is_low);
    let exponent = exponent as f32;

    let z = m * m;
    let mut y = POLYNOMIAL[0];
    for &coefficient in &POLYNOMIAL[1..] {
        y = y.mul_add(m, coefficient);
    }
    y *= m;
    y = y.mul_add(z, exponent * LN_2[1]);
    y = (-z).mul_add(0.5, y);
    exponent.mul_add(LN_2[0], m + y)
}

/// The sine and the cosine of an angle in [0, 2π], in radians: Cephes' `sinf` and `cosf`, the way
/// `sincos256_ps` in `ATen/native/cpu/avx_mathfun.h` computes them once the compiler has fused its products
/// and sums.
#[inline(always)]
fn sin_cos(theta: f32) -> (f32, f32) {
    /// `cephes_FOPI`, 4/π.
    const OCTANTS_PER_RADIAN: f32 = 4.0 * FRAC_1_PI;
    /// `minus_cephes_DP1` to `minus_cephes_DP3`: −π/4 in three parts, the first two with so few digits
    /// that their products with an octant are exact.
    #[allow(clippy::excessive_precision, reason = "the digits of Cephes")]
    const MINUS_QUARTER_PI: [f32; 3] =
        [-0.785_156_25, -2.418_756_484_985_351_562_5e-4, -3.774_894_977_445_941_08e-8];
    /// `sincof_p0` to `sincof_p2`: the polynomial for sin t beyond t on [−π/4, π/4], the highest power
    /// first.
    #[allow(clippy::excessive_precision, reason = "the digits of Cephes")]
    const SIN: [f32; 3] = [-1.951_529_589_1e-4, 8.332_160_873_6e-3, -1.666_665_461_1e-1];
    /// `coscof_p0` to `coscof_p2`: the polynomial for cos t beyond 1 − t²/2.
    #[allow(clippy::excessive_precision, reason = "the digits of Cephes")]
    const COS: [f32; 3] =
        [2.443_315_711_809_948e-5, -1.388_731_625_493_765e-3, 4.166_664_568_298_827e-2];

    // The even octant next to the angle, and t, the angle as seen from there.
    #[allow(clippy::cast_possible_truncation, reason = "Cephes rounds towards zero")]
    let octant = ((theta * OCTANTS_PER_RADIAN) as i32 + 1) & !1;
    let octants = octant as f32;
    let mut t = theta;
    for part in MINUS_QUARTER_PI {
        t = octants.mul_add(part, t);
    }

    let z = t * t;
    let sin = SIN[0].mul_add(z, SIN[1]).mul_add(z, SIN[2]) * z;
    let sin = sin.mul_add(t, t);
    let cos = COS[0].mul_add(z, COS[1]).mul_add(z, COS[2]) * z;
    let cos = cos.mul_add(z, -(z * 0.5)) + 1.0;

    // A quarter turn swaps the two, and the half of the circle decides each one's sign.
    let (sin, cos) = if octant & 2 == 0 { (sin, cos) } else { (cos, sin) };
    let sin_sign = (octant & 4).cast_unsigned() << 29;
    let cos_sign = (!(octant - 2) & 4).cast_unsigned() << 29;
    (f32::from_bits(sin.to_bits() ^ sin_sign), f32::from_bits(cos.to_bits() ^ cos_sign))
}
