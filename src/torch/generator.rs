//! The CPU random number generator of PyTorch, bit for bit.
//!
//! The tensors that `torch.rand`, `torch.randn`, `tensor.uniform_`, `nn.Linear`,
//! `nn.init.xavier_uniform_` and `F.dropout` draw after `torch.manual_seed(seed)` come out here with
//! the same bits, as long as the calls come in the same order. The generator underneath is MT19937
//! (`ATen/core/MT19937RNGEngine.h`, here [`rand_mt`]); this file is what PyTorch builds on it, in
//! `ATen/core/DistributionsHelper.h`, `ATen/core/TransformationHelper.h` and
//! `ATen/native/cpu/DistributionTemplates.h`.
//!
//! The arithmetic is that of PyTorch's build for AVX2, which every x86-64 machine with AVX2 or
//! AVX-512 runs, and it is the same here on every processor: where a fused multiply-add is missing in
//! hardware, [`f32::mul_add`] computes it in software, slower but with the same bits. Normal numbers can also be
//! drawn as PyTorch draws them on Arm ([`Generator::of_cpu`]).

#![allow(
    clippy::inline_always,
    reason = "what is not inlined into `Arch::dispatch` is compiled without the processor's fma"
)]

use pulp::{Arch, NullaryFnOnce};
use rand_mt::Mt;

use super::normal::{NORMAL_BLOCK, normal_blocks, scalar_normal_blocks};
use config::TorchCpu;
use program::make_ready;

/// Elements drawn and then transformed at a time: 16 KiB, so that the second pass finds them in the
/// first-level cache. A multiple of [`NORMAL_BLOCK`].
const CHUNK: usize = 4096;

/// Fewer normal numbers than this are drawn before another thread has begun.
const MANY: usize = 1 << 18;

/// So many are handed to another thread at a time, a multiple of [`NORMAL_BLOCK`].
const PIECE: usize = 1 << 16;

/// 2⁻²⁴ and the mask to go with it: `uniform_real<float>` uses as many bits as an f32 has digits.
const F32_UNIT: f32 = 1.0 / 16_777_216.0;
const F32_DIGITS: u32 = (1 << f32::MANTISSA_DIGITS) - 1;

/// 2⁻⁵³ and the mask to go with it: `uniform_real<double>` uses as many bits as an f64 has digits.
const F64_UNIT: f64 = 1.0 / 9_007_199_254_740_992.0;
const F64_DIGITS: u64 = (1 << f64::MANTISSA_DIGITS) - 1;

/// PyTorch's CPU generator: what `torch.manual_seed(seed)` leaves behind, and the draws that follow.
///
/// Every method returns a tensor's elements in row-major order and advances the generator as the
/// PyTorch call does that it is named after. So the order of the calls matters, and so does the size
/// of each: two draws of eight normal numbers are not one draw of sixteen.
///
/// The values equal those of PyTorch bit for bit on x86-64 with AVX2 or AVX-512 (checked with
/// 2.15.0). Not everything is the same on every machine in PyTorch itself. On Arm, [`randn`](Self::randn) of 16
/// elements and more differs in the last bits, for which there is [`Generator::of_cpu`]. On x86-64 without AVX2
/// it is as on Arm, and [`uniform`](Self::uniform) rounds twice, which nothing here does. PyTorch 2.6 and older
/// draws the mask of [`dropout_keep`](Self::dropout_keep) from another generator on Intel processors. And all take
/// the logarithm, sine and cosine of shorter [`randn`](Self::randn) from the system's mathematics library, before
/// they round to f32.
///
/// The methods allocate what they return; that `count`, or `inputs · outputs`, fits into memory is for
/// the caller to check.
#[derive(Clone, Debug)]
pub struct Generator {
    /// The source of all bits.
    twister: Mt,
    /// The sine half of the last pair that [`Generator::randn`] drew one number at a time, a standard
    /// normal number for the next such draw (`next_double_normal_sample` of `CPUGeneratorImpl`).
    spare_normal: Option<f64>,
    /// The processor whose normal numbers are drawn.
    cpu: TorchCpu,
}

impl Generator {
    /// The generator after `torch.manual_seed(seed)`.
    ///
    /// MT19937 is seeded by the reference `init_genrand` from the **low 32 bits** of the seed
    /// (`mt19937::init_with_uint32` in `ATen/core/MT19937RNGEngine.h`), so 2³² + 5 gives what 5 gives.
    /// Python's negative seed −n is 2⁶⁴ − n.
    pub fn new(seed: u64) -> Self {
        Self::of_cpu(seed, TorchCpu::X86)
    }

    /// The generator after `torch.manual_seed(seed)` on a processor.
    ///
    /// On Arm, [`randn`](Self::randn) of 16 elements and more takes the logarithm, sine and cosine from the C
    /// library, in f32 (`normal_fill` in `ATen/native/cpu/DistributionTemplates.h`). Here it is the library of the
    /// machine that runs: with glibc, that of Linux, the bits are PyTorch's.
    pub fn of_cpu(seed: u64, cpu: TorchCpu) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "PyTorch uses the low 32 bits")]
        let low_bits = seed as u32;
        Self { twister: Mt::new(low_bits), spare_normal: None, cpu }
    }

    /// `torch.rand(count)`: uniform on [0, 1) in steps of 2⁻²⁴, one draw of 32 bits an element.
    ///
    /// Formula: `uniform_real<float>` in `ATen/core/TransformationHelper.h`, the low 24 bits times 2⁻²⁴.
    pub fn rand(&mut self, count: usize) -> Vec<f32> {
        let mut values = vec![0.0; count];
        self.fill(&mut values, |_| {});
        values
    }

    /// `torch.randn(count)`: standard normal (mean 0, standard deviation 1).
    ///
    /// Formula: Box–Muller, `normal_kernel` in `ATen/native/cpu/DistributionTemplates.h`, in two ways:
    /// - **Fewer than 16 elements**: `normal_distribution<double>`, one at a time and in f64. The numbers
    ///   come in pairs, and the second of a pair is kept for the next draw of this kind, also of a later
    ///   call.
    /// - **16 elements or more**: `normal_fill`, in f32. The whole tensor is filled as by
    ///   [`rand`](Self::rand), then transformed in blocks of 16. If `count` is no multiple of 16, the
    ///   last 16 elements are drawn anew and transformed as one more block. A number kept from the
    ///   other way stays kept.
    pub fn randn(&mut self, count: usize) -> Vec<f32> {
        self.normal(count, 1.0)
    }

    /// `torch.empty(count).normal_(0, deviation)`: as [`randn`](Self::randn), times the deviation before it is rounded.
    pub fn normal(&mut self, count: usize, deviation: f64) -> Vec<f32> {
        if count < NORMAL_BLOCK {
            return (0..count).map(|_| self.scalar_normal(deviation)).collect();
        }
        let mut values = vec![0.0; count];
        make_ready(&mut values);
        self.fill_normal(&mut values);
        if !count.is_multiple_of(NORMAL_BLOCK)
            && let Some(last) = values.last_chunk_mut::<NORMAL_BLOCK>()
        {
            self.fill_normal(last);
        }
        // `NormalFill16` multiplies by the deviation in f32.
        #[allow(clippy::cast_possible_truncation, reason = "PyTorch rounds to the tensor's type")]
        let deviation = deviation as f32;
        #[allow(clippy::float_cmp, reason = "what is multiplied by 1 stays as it is")]
        if deviation != 1.0 {
            for value in &mut values {
                *value *= deviation;
            }
        }
        values
    }

    /// `nn.init.xavier_normal_(weight)` for a parameter (1, 1, size), as the learned key of `nn.MultiheadAttention`, whose
    /// inputs and outputs PyTorch both takes to be `size`.
    ///
    /// Formula: Glorot & Bengio (2010) as in `nn.init.xavier_normal_` with gain 1, normal with √(2 / (inputs + outputs)).
    pub fn xavier_normal(&mut self, size: usize) -> Vec<f32> {
        self.normal(size, (2.0 / to_f64(size.saturating_add(size))).sqrt())
    }

    /// `torch.empty(count).uniform_(low, high)`: uniform on [low, high), one draw of 32 bits an element.
    ///
    /// Formula: `uniform_real<float>` in `ATen/core/TransformationHelper.h`, `u · (high − low) + low` with
    /// u as from [`rand`](Self::rand) and both bounds rounded to f32 first. The compiler fuses the
    /// product and the sum into one rounding. What that rounding lifts to `high` becomes `low`
    /// (`uniform_kernel` in `ATen/native/cpu/DistributionTemplates.h`).
    ///
    /// PyTorch refuses bounds that are not finite, `low > high`, and a difference beyond the range of
    /// f32; here the formula is applied to them as it stands.
    pub fn uniform(&mut self, count: usize, low: f64, high: f64) -> Vec<f32> {
        #[allow(clippy::cast_possible_truncation, reason = "PyTorch rounds to the tensor's type")]
        let (low, high) = (low as f32, high as f32);
        let range = high - low;
        let mut values = vec![0.0; count];
        self.fill(
            &mut values,
            #[inline(always)]
            |chunk| {
                for value in chunk {
                    let scaled = value.mul_add(range, low);
                    #[allow(clippy::float_cmp, reason = "PyTorch compares for equality")]
                    let is_high = scaled == high;
                    *value = if is_high { low } else { scaled };
                }
            },
        );
        values
    }

    /// The weight of a new `nn.Linear(inputs, outputs)`: shape (outputs, inputs), row-major.
    ///
    /// Formula: `Linear.reset_parameters`, which calls `nn.init.kaiming_uniform_(weight, a=√5)`: uniform
    /// within ±√3 · gain / √inputs, where gain = √(2 / (1 + a²)). That is ±1/√inputs but for rounding.
    pub fn linear_weight(&mut self, inputs: usize, outputs: usize) -> Vec<f32> {
        let gain = (2.0 / (1.0 + 5_f64.sqrt().powi(2))).sqrt();
        let bound = 3_f64.sqrt() * (gain / to_f64(inputs).sqrt());
        self.uniform(inputs.saturating_mul(outputs), -bound, bound)
    }

    /// The bias of a new `nn.Linear(inputs, outputs)`: shape (outputs). PyTorch draws it straight after
    /// the weight.
    ///
    /// Formula: `Linear.reset_parameters`, uniform within ±1/√inputs; zeros if there are no inputs.
    pub fn linear_bias(&mut self, inputs: usize, outputs: usize) -> Vec<f32> {
        let bound = if inputs == 0 { 0.0 } else { 1.0 / to_f64(inputs).sqrt() };
        // Python's −0 is 0 here, so that the lower bound is never the −0 of an f64.
        self.uniform(outputs, 0.0 - bound, bound)
    }

    /// `nn.init.xavier_uniform_(weight)` for the weight of an `nn.Linear(inputs, outputs)`: shape
    /// (outputs, inputs), row-major.
    ///
    /// Formula: Glorot & Bengio (2010) as in `nn.init.xavier_uniform_` with gain 1, uniform within
    /// ±√3 · √(2 / (inputs + outputs)).
    pub fn xavier_uniform(&mut self, inputs: usize, outputs: usize) -> Vec<f32> {
        let deviation = (2.0 / to_f64(inputs.saturating_add(outputs))).sqrt();
        let bound = 3_f64.sqrt() * deviation;
        self.uniform(inputs.saturating_mul(outputs), -bound, bound)
    }

    /// Which of `count` elements `F.dropout(input, p, training=True)` keeps (`true`); two draws of 32 bits
    /// an element.
    ///
    /// `p` in [0, 1] is the probability of being dropped. With p = 0 everything is kept, with p = 1
    /// nothing, and neither draws. The kept elements are then multiplied by
    /// [`dropout_scale`](program::dropout_scale), the others by 0.
    ///
    /// Formula: `bernoulli_distribution<double>` in `ATen/core/DistributionsHelper.h` for the probability
    /// 1 − p: kept is what draws less than that, uniformly on [0, 1) in steps of 2⁻⁵³.
    #[allow(clippy::float_cmp, reason = "PyTorch compares p with 0 and 1 for equality")]
    pub fn dropout_keep(&mut self, count: usize, p: f64) -> Vec<bool> {
        if p == 0.0 || p == 1.0 {
            return vec![p == 0.0; count];
        }
        let probability = 1.0 - p;
        (0..count).map(|_| self.unit_f64() < probability).collect()
    }

    /// Fills with standard normal numbers; a rest beyond the last full block stays uniform.
    fn fill_normal(&mut self, values: &mut [f32]) {
        let is_arm = self.cpu == TorchCpu::Arm;
        if values.len() >= MANY {
            // The numbers come one after the other; other threads transform those that are there.
            return rayon::in_place_scope(|scope| {
                for piece in values.chunks_mut(PIECE) {
                    self.fill(piece, |_| {});
                    scope.spawn(move |_| {
                        if is_arm {
                            scalar_normal_blocks(piece);
                        } else {
                            Arch::new().dispatch(Normal { values: piece });
                        }
                    });
                }
            });
        }
        if is_arm {
            return self.fill(values, scalar_normal_blocks);
        }
        #[allow(clippy::redundant_closure, reason = "a function passed by name is not inlined")]
        self.fill(
            values,
            #[inline(always)]
            |chunk| normal_blocks(chunk),
        );
    }

    /// Fills as [`rand`](Self::rand) does and passes every chunk through `transform`, a closure to be
    /// marked `#[inline(always)]`. The chunks are multiples of [`NORMAL_BLOCK`] but for the last.
    fn fill(&mut self, values: &mut [f32], transform: impl Fn(&mut [f32])) {
        Arch::new().dispatch(Fill { twister: &mut self.twister, values, transform });
    }

    /// One uniform number on [0, 1) in steps of 2⁻⁵³ (`uniform_real<double>`), from two draws, the high
    /// half first (`random64` of `CPUGeneratorImpl`).
    #[inline]
    fn unit_f64(&mut self) -> f64 {
        let digits = (self.twister.next_u64() & F64_DIGITS) as f64;
        digits * F64_UNIT
    }

    /// One standard normal number (`normal_distribution<double>`), rounded to f32.
    fn scalar_normal(&mut self, deviation: f64) -> f32 {
        let sample = self.spare_normal.take().unwrap_or_else(|| {
            let u1 = self.unit_f64();
            let u2 = self.unit_f64();
            let radius = (-2.0 * (-u2).ln_1p()).sqrt();
            let theta = std::f64::consts::TAU * u1;
            self.spare_normal = Some(radius * theta.sin());
            radius * theta.cos()
        });
        // `transformation::normal` adds the mean, 0, which turns −0 into +0.
        #[allow(clippy::cast_possible_truncation, reason = "PyTorch rounds to the tensor's type")]
        let rounded = (sample * deviation + 0.0) as f32;
        rounded
    }
}

/// The loop of [`Generator::fill`]. A type of its own, because a closure that is given to
/// [`Arch::dispatch`] is not reliably inlined into it.
struct Fill<'a, Transform> {
    twister: &'a mut Mt,
    values: &'a mut [f32],
    transform: Transform,
}

impl<Transform: Fn(&mut [f32])> NullaryFnOnce for Fill<'_, Transform> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for chunk in self.values.chunks_mut(CHUNK) {
            fill_unit_f32(self.twister, chunk);
            (self.transform)(chunk);
        }
    }
}

/// Blocks of uniform numbers that become normal ones.
struct Normal<'a> {
    values: &'a mut [f32],
}

impl NullaryFnOnce for Normal<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        normal_blocks(self.values);
    }
}

/// A dimension as Python's `float` of it.
fn to_f64(dimension: usize) -> f64 {
    dimension as f64
}

/// Fills with uniform numbers on [0, 1) in steps of 2⁻²⁴ (`uniform_real<float>`).
#[inline(always)]
fn fill_unit_f32(twister: &mut Mt, values: &mut [f32]) {
    // The twister yields one number at a time: gathered in an array first, the rest is vectorised.
    let (blocks, rest) = values.as_chunks_mut::<64>();
    for block in blocks {
        let draws: [u32; 64] = std::array::from_fn(
            #[inline(always)]
            |_| twister.next_u32(),
        );
        for (value, draw) in block.iter_mut().zip(draws) {
            *value = unit_f32(draw);
        }
    }
    for value in rest {
        *value = unit_f32(twister.next_u32());
    }
}

/// The low 24 bits as a number on [0, 1).
#[inline(always)]
fn unit_f32(draw: u32) -> f32 {
    (draw & F32_DIGITS) as f32 * F32_UNIT
}

/// The expected bits are those of PyTorch 2.15.0 (x86-64, AVX-512).
#[cfg(test)]
mod tests {
    use super::{Generator, MANY, PIECE};
    use config::TorchCpu;

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    /// One number that depends on every bit of every element.
    fn fold(values: &[f32]) -> u32 {
        values.iter().fold(0, |folded: u32, value| folded.rotate_left(5) ^ value.to_bits())
    }

    #[test]
    fn short_randn_keeps_its_spare_number_across_all_other_draws() {
        let mut generator = Generator::new(42);
        assert_eq!(bits(&generator.randn(3)), [0x3eac_62ae, 0x3e03_e69d, 0x3e70_16e7]);
        assert_eq!(bits(&generator.rand(2)), [0x3f70_d666, 0x3e08_61e4]);
        assert_eq!(bits(&generator.randn(2)), [0x3e6b_dc6c, 0xc01d_d3e1]);
        // 17 elements: the last 16 are drawn twice, and the spare number is left alone.
        assert_eq!(
            bits(&generator.randn(17)),
            [
                0xbef4_90d4,
                0xbe5e_020f,
                0xbfb1_3cfd,
                0xbf5f_0955,
                0xbe64_ba09,
                0x3fdb_d280,
                0x3ea3_4448,
                0xbed9_5a8d,
                0x3e9c_8774,
                0x3ea9_6b85,
                0xbfc7_5e89,
                0x3f7e_e202,
                0xbf61_39a5,
                0xbf19_e472,
                0xbfa3_1763,
                0x4007_dbb6,
                0xbf9e_091d,
            ]
        );
        assert_eq!(bits(&generator.randn(2)), [0x3eb9_7d94, 0xbe8c_aa12]);
    }

    #[test]
    fn long_draws_span_chunks() {
        let mut generator = Generator::new(7);
        assert_eq!(fold(&generator.randn(100_001)), 0x2bbb_e773);
        assert_eq!(fold(&generator.rand(9_999)), 0x616d_443e);
    }

    /// As many at once as other threads help with are those of shorter draws that end at full blocks.
    #[test]
    fn many_at_once_are_those_of_shorter_draws() {
        for cpu in [TorchCpu::X86, TorchCpu::Arm] {
            let mut parts = Generator::of_cpu(3, cpu);
            let mut whole = parts.clone();
            let count = 3 * PIECE + MANY + 160;
            let parts: Vec<f32> = (0..count / 80).flat_map(|_| parts.randn(80)).collect();
            assert_eq!(bits(&whole.randn(count / 80 * 80)), bits(&parts));
        }
    }

    #[test]
    fn randn_has_no_negative_zero() {
        // The seventh uniform number of this seed is 0, which makes the radius −0; its angle is in the
        // first quadrant.
        let values = Generator::new(3_109_716).randn(16);
        assert_eq!([values[6].to_bits(), values[14].to_bits()], [0, 0]);
    }

    #[test]
    fn uniform_rounds_once_and_stays_below_the_upper_bound() {
        let mut generator = Generator::new(42);
        // Rounding the product and the sum one by one gives other bits in all but the fourth.
        assert_eq!(
            bits(&generator.uniform(6, -0.1, 0.2)),
            [0x3e28_a215, 0x3e32_b071, 0x3c73_73b7, 0x3e40_4c78, 0x3c8c_5d95, 0x3da4_63de]
        );
        // Three numbers near the upper bound round to it.
        assert_eq!(
            bits(&generator.uniform(6, 1.0, 1.000_000_2)),
            [0x3f80_0001, 0x3f80_0000, 0x3f80_0000, 0x3f80_0000, 0x3f80_0000, 0x3f80_0001]
        );
    }

    #[test]
    fn linear_then_xavier() {
        let mut generator = Generator::new(42);
        assert_eq!(
            bits(&generator.linear_weight(3, 2)),
            [0x3ee2_0009, 0x3ef5_5a65, 0xbe0a_80e2, 0x3f07_c5b4, 0xbe01_8916, 0x3dee_999a]
        );
        assert_eq!(bits(&generator.linear_bias(3, 2)), [0xbe8f_ea7d, 0x3ead_9a4b]);
        assert_eq!(
            bits(&generator.xavier_uniform(3, 2)),
            [0x3f77_36ee, 0xbf4d_bbf8, 0x3f73_c08b, 0x3e51_f17c, 0x3f4f_2fe6, 0x3e17_ead6]
        );
        assert_eq!(bits(&generator.linear_bias(0, 2)), [0, 0]);
    }

    #[test]
    fn dropout() {
        let mut generator = Generator::new(42);
        // p = 0 and p = 1 draw nothing: the mask that follows is that of a new generator.
        assert_eq!(generator.dropout_keep(2, 0.0), [true; 2]);
        assert_eq!(generator.dropout_keep(2, 1.0), [false; 2]);
        let dropped: Vec<usize> = generator
            .dropout_keep(12, 0.228)
            .iter()
            .enumerate()
            .filter_map(|(index, keep)| (!keep).then_some(index))
            .collect();
        assert_eq!(dropped, [6, 7]);
    }

    #[test]
    fn seeds_are_cut_to_32_bits() {
        for (seed, expected) in [
            (5, [0x3f54_8b63, 0x3e01_2338]),
            ((1 << 32) + 5, [0x3f54_8b63, 0x3e01_2338]),
            (u64::MAX, [0x3f7e_69a3, 0x3f12_4122]),
        ] {
            assert_eq!(bits(&Generator::new(seed).rand(2)), expected, "seed {seed}");
        }
    }
}
