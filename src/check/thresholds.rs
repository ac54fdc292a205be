//! How near must two values be to be called the same? Every threshold, its reason, and the measurement that it comes from.
//!
//! "Correct runs" are those of `benches/pytorch.py noise --runs 500` (seeds 0, 5 and 7: f64, f32, f16 and bf16, reduced
//! precision, products added in random order, all steps or some recorded); "wrong dumps" those of `fixtures/`.

/// What the noise of one run is multiplied by: another order of additions and other instructions give other noise of the same
/// size, and one run is a small sample of it. With 16 none of 1,500 correct runs is called different; of 500 others (seed 11)
/// two are, in which ten numbers or fewer are too few to tell bf16 products by.
pub const ALLOWED: f64 = 16.0;

/// The same for a single step in 16 bits whose inputs were recorded. Nothing adds up there but the roundings within the step:
/// a rotation in bf16 rounds cosine, products and sum. Of 247 correct runs in 16 bits the worst such step is off by 2.6 times
/// its noise.
pub const ALLOWED_ALONE: f64 = 4.0;

/// Correct runs in 16 bits are off by no more than that in multiples of their noise: 2.6 times at most in 247.
pub const USUAL: f64 = 3.0;

/// What counts of noise that is larger than all that was recorded, relative to the size of a row: kernels keep scores of
/// hundreds in f32, and a run that rounds them to 16 bits is off by more than the weights are large.
pub const OF_LARGE_NOISE: f64 = 0.02;

/// What the noise of gradients is multiplied by where that is so: their sums cancel out, as that of a key's bias does but for a
/// soft cap. Of 200 right layers in 16 bits with a cap, the worst is off by less than 6 times its noise.
pub const OF_CANCELLED: f64 = 6.0;

/// No score is as large as that, and no added mask as small: -10000 was usual before -inf was.
pub const BEYOND_SCORES: f64 = -run::LOW;

/// A score that is so far below the largest of its row has the weight 0, in f64 as well: e⁻⁷⁴⁶ is 0 there.
pub const WEIGHTLESS: f64 = 746.0;

/// Values beyond that are fills of masks, not numbers.
pub const FILL: f64 = 1e8;

/// What a factor or a shift that all numbers share may be, in multiples of the noise of single rows: over many numbers rounding
/// cancels out, so that even 1 is generous.
pub const DIRECTION: f64 = 1.0;

/// The same of gradients in f32 is so many times as much: all of a row share its delta, and where softmax is sharp few weights
/// give all of them. Of 120 right layers the worst shares 2.2 times its noise.
pub const SHARED: f64 = 4.0;

/// From so many numbers on a factor that they share says something.
pub const DIRECTION_FROM: usize = 32;

/// The numbers of a row can be off alike, as all come from the same weights, and so few rows cancel out less: the mean of n
/// goes with 1/√n.
pub const MANY_ROWS: f64 = 16.0;

/// So many standard deviations of a group's common factor or shift are no chance, over the thousands of groups of a run.
pub const DEVIATIONS: f64 = 6.0;

/// The same of roundings that add up over many steps: what the cells of a row are off by comes from few numbers, such as the
/// largest weight, that happen to be rounded much or little.
pub const DEVIATIONS_ADDED_UP: f64 = 8.0;

/// From so many groups on it shows how much of what they are off by is shared.
pub const MANY_GROUPS: usize = 16;

/// Fewer cells say nothing together that each does not say by itself, and no fitted number can be told by them.
pub const LEAST_CELLS: usize = 8;

/// Numbers that differ by less than that agree in every type, as `torch.testing.assert_close` has it.
pub const LEAST_DIFFERENCE: f64 = 1e-5;

/// How much of its distance from what was recorded a candidate may leave: where rounding is large, a value that differs little
/// from the expected one would agree as well.
pub const NEARER: f64 = 0.5;

/// Two candidates come equally near if their gains differ by less than this share: sums in another order differ so.
pub const EQUAL_GAIN: f64 = 0.01;

/// The cosine of two roundings from which on they are one, but for ties that fall on the other side. A mistake beside it would
/// have to be smaller than the rounding itself.
pub const SAME_ROUNDING: f64 = 0.75;

/// How many times as large one of two such roundings may be: instructions round more or less.
pub const AS_LARGE: f64 = 4.0;

/// Numbers that are off by more of themselves in the mean are not off by rounding: bf16 has 2^−9, which sums of numbers that
/// cancel out make tens of times as large.
pub const MOST_ROUNDING: f64 = 0.2;

/// Rounding to a type takes some number off by more than that part of the type's spacing.
pub const LEAST_ROUNDING: f64 = 1.0 / 16.0;

/// One cell in so many may fall on the other side of a tie where both values are numbers of a narrow type.
pub const TIES: usize = 20;

/// What the sums of the same numbers, each rounded, may be off by at most, as a part of the sum of their sizes. Rounding of f32
/// has a millionth of a number, and its largest excuse is 16 times that; that of 16 bits a hundredth.
pub const OF_SUMS: f64 = 1e-3;
/// The same in 16 bits.
pub const OF_SUMS_IN_16_BITS: f64 = 0.1;

/// A row or column that was moved is found where it agrees so far, relative to its numbers: as f32 rounds.
pub const MOVED: f64 = 1e-4;

/// So many numbers that are off tell why, or all where there are fewer: NaN agrees with whatever becomes NaN.
pub const LEAST_TELLING: usize = 4;

/// Where no more numbers tell, and none is off by so many tolerances, two mistakes are no answer: whatever changes the run a
/// little is one of some pair. An ε of 1e-5 for 1e-6 takes one cell of an output off by 1.2.
pub const HARDLY_OFF: f64 = 4.0;

/// A clue's number accounts for so much of the squares of what a step is off by.
pub const MOST_OF_IT: f64 = 0.9;
/// The same where there is a number for each feature.
pub const MOST_OF_A_BIAS: f64 = 0.99;

/// A fitted number that is so near the meant one, as a part of it, is that one: rounding of f32 leaves five digits, and nobody
/// writes another number in more.
pub const AS_MEANT: f64 = 1e-5;

/// The same of products in TF32, whose numbers have 10 bits.
pub const AS_LOWERED: f64 = 1.0 / 1024.0;
