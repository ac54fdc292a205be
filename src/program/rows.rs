//! Values of f32 that are computed some rows at a time, on all cores: what a step makes of some rows is read by the next
//! one while it is still near the processor. A step that is computed alone goes the same way, to the same bits.

use std::marker::PhantomData;
use std::ops::{Deref, Range};

use candle_core::{Device, Shape, Storage, Tensor, WithDType};
use rayon::prelude::*;

use super::raw::make_ready;
use base::error::Result;

/// Fewer numbers than this are done before other threads have begun.
const MANY: usize = 1 << 16;

/// So many numbers of every value stay near the processor.
const PIECE: usize = 1 << 17;

/// What makes rows of a value from the same rows of what its step reads first.
pub struct Rows<'a> {
    /// How many numbers a row of the value has.
    columns: usize,
    /// Whether the value has an axis for these: a sum over the row has none.
    has_axis: bool,
    make: Box<Make<'a>>,
}

/// Gets the place of the first row among all rows, the rows that are read, and those to be made, which are zeros.
type Make<'a> = dyn Fn(usize, &[f32], &mut [f32]) + Sync + 'a;

impl<'a> Rows<'a> {
    /// Rows of so many numbers, each of the whole row that is read.
    pub(super) fn new(
        columns: usize,
        make: impl Fn(usize, &[f32], &mut [f32]) + Sync + 'a,
    ) -> Self {
        Self { columns, has_axis: true, make: Box::new(make) }
    }

    /// One number of each row.
    pub(super) fn reduced(make: impl Fn(usize, &[f32], &mut [f32]) + Sync + 'a) -> Self {
        Self { columns: 1, has_axis: false, make: Box::new(make) }
    }

    /// Rows of this shape, each number of the one in its place.
    pub(super) fn mapped(
        shape: &[usize],
        function: impl Fn(f32) -> f32 + Sync + 'a,
    ) -> Option<Self> {
        let make = move |_: usize, read: &[f32], made: &mut [f32]| {
            for (made, read) in made.iter_mut().zip(read) {
                *made = function(*read);
            }
        };
        Some(Self::new(*shape.last()?, make))
    }

    /// Rows of this shape, each number of the one in its place and the one that `beside` has there.
    pub(super) fn with<T: WithDType>(
        shape: &[usize],
        beside: &'a Tensor,
        function: impl Fn(f32, T) -> f32 + Sync + 'a,
    ) -> Option<Self> {
        let (beside, columns) = (Beside::<T>::of(beside, shape)?, *shape.last()?);
        let make = move |first: usize, read: &[f32], made: &mut [f32]| {
            let rows = made.chunks_mut(columns).zip(read.chunks(columns));
            for (at, (made, read)) in rows.enumerate() {
                let (others, step) = beside.row(first + at);
                let cells = made.iter_mut().zip(read);
                let set = |((made, read), other): ((&mut f32, &f32), &T)| {
                    *made = function(*read, *other);
                };
                match (step, others.first()) {
                    (0, Some(other)) => cells.zip(std::iter::repeat(other)).for_each(set),
                    // Many numbers are taken at once where the step is known.
                    (1, _) => cells.zip(others).for_each(set),
                    _ => cells.zip(others.iter().step_by(step.max(1))).for_each(set),
                }
            }
        };
        Some(Self::new(columns, make))
    }
}

/// The numbers of a tensor.
pub struct Numbers<'a, T> {
    storage: Box<dyn Deref<Target = Storage> + Sync + 'a>,
    range: Range<usize>,
    of: PhantomData<T>,
}

impl<'a, T: WithDType> Numbers<'a, T> {
    /// Those of a tensor that has them one behind the other; nothing where they are of another type.
    pub fn of(tensor: &'a Tensor) -> Option<Self> {
        let (from, to) = tensor.layout().contiguous_offsets()?;
        Self::within(tensor, from..to)
    }

    fn within(tensor: &'a Tensor, range: Range<usize>) -> Option<Self> {
        let (storage, _) = tensor.storage_and_layout();
        let numbers = Self { storage: Box::new(storage), range, of: PhantomData };
        (tensor.dtype() == T::DTYPE && !numbers.is_empty()).then_some(numbers)
    }
}

impl<T: WithDType> Deref for Numbers<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let Storage::Cpu(storage) = &**self.storage else { return &[] };
        let all = storage.as_slice::<T>().unwrap_or_default();
        let Range { start, end } = self.range;
        all.get(start..end.min(all.len())).unwrap_or_default()
    }
}

/// The numbers of a tensor that is broadcast to rows.
struct Beside<'a, T> {
    numbers: Numbers<'a, T>,
    /// The size and the step of every axis but the last.
    rows: Vec<(usize, usize)>,
    step: usize,
}

impl<'a, T: WithDType> Beside<'a, T> {
    /// Those of a tensor beside a value of this shape; nothing where it does not broadcast to it.
    fn of(tensor: &'a Tensor, shape: &[usize]) -> Option<Self> {
        let layout = tensor.layout().broadcast_as(Shape::from(shape)).ok()?;
        let ((step, steps), (_, sizes)) = (layout.stride().split_last()?, shape.split_last()?);
        let rows = sizes.iter().copied().zip(steps.iter().copied()).collect();
        let numbers = Numbers::within(tensor, layout.start_offset()..usize::MAX)?;
        Some(Self { numbers, rows, step: *step })
    }

    /// What stands beside a row from its first number on, and how far the next number is.
    fn row(&self, row: usize) -> (&[T], usize) {
        let mut left = row;
        let start = self.rows.iter().rev().fold(0, |at, (size, step)| {
            let place = left % size;
            left /= size;
            at + place * step
        });
        (self.numbers.get(start..).unwrap_or_default(), self.step)
    }
}

/// Values that follow from each other row by row, and what the first of them is made of.
pub(super) struct Chain<'a> {
    read: Numbers<'a, f32>,
    /// How many rows there are, by every axis but the last.
    leading: &'a [usize],
    /// The shape of the last value so far; nothing behind a value that has no rows of its own.
    shape: Vec<usize>,
    steps: Vec<Rows<'a>>,
}

/// Gets the rows of a chain as they are made: of which of its steps, the place of the first number, and the numbers.
type Receive<'r> = dyn Fn(usize, usize, &[f32]) -> Result<()> + Sync + 'r;

impl<'a> Chain<'a> {
    /// One that begins with a tensor; nothing where that has no rows of f32.
    pub(super) fn of(read: &'a Tensor) -> Option<Self> {
        let (_, leading) = read.dims().split_last()?;
        let shape = read.dims().to_vec();
        Some(Self { read: Numbers::of(read)?, leading, shape, steps: Vec::new() })
    }

    /// Goes on with what follows row by row.
    pub(super) fn add(&mut self, rows: Rows<'a>) {
        self.shape = if rows.has_axis { shaped(self.leading, &rows) } else { Vec::new() };
        self.steps.push(rows);
    }

    /// The shape of the last value.
    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many steps it has.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// The values of those steps of which it is said that they are kept.
    ///
    /// # Errors
    /// Those of `receive`, or if candle fails.
    pub(super) fn computed(
        &self,
        is_kept: impl Fn(usize) -> bool,
        receive: &Receive,
    ) -> Result<Vec<Option<Tensor>>> {
        let Self { read: numbers, leading, steps, .. } = self;
        let count = leading.iter().product::<usize>();
        let columns = numbers.len() / count.max(1);
        let most = steps.iter().map(|step| step.columns).fold(columns, usize::max);
        let mut values: Vec<Option<Vec<f32>>> = steps
            .iter()
            .enumerate()
            .map(|(at, step)| is_kept(at).then(|| vec![0.0; count * step.columns]))
            .collect();
        for value in values.iter_mut().flatten() {
            make_ready(value);
        }

        let mut left: Vec<Option<&mut [f32]>> =
            values.iter_mut().map(|value| value.as_deref_mut()).collect();
        let mut pieces = Vec::new();
        for rows in pieces_of(count, leading.last().copied().unwrap_or(1), PIECE / most) {
            let read = numbers.get(rows.start * columns..rows.end * columns).unwrap_or_default();
            let mut parts = Vec::with_capacity(steps.len());
            for (left, step) in left.iter_mut().zip(steps) {
                parts.push(match left {
                    Some(left) => left.split_off_mut(..rows.len() * step.columns),
                    None => None,
                });
            }
            pieces.push((rows, read, parts));
        }
        let make = |beside: &mut Vec<Vec<f32>>, (rows, read, parts): Piece| {
            let mut read = read;
            let places = steps.iter().zip(parts).zip(beside).enumerate();
            for (at, ((step, part), beside)) in places {
                let part = part.unwrap_or_else(|| {
                    beside.clear();
                    beside.resize(rows.len() * step.columns, 0.0);
                    beside
                });
                (step.make)(rows.start, read, part);
                receive(at, rows.start * step.columns, part)?;
                read = part;
            }
            Ok(())
        };
        let beside = || vec![Vec::new(); steps.len()];
        let done: Result<()> = if count * most < MANY {
            pieces.into_iter().try_for_each(|piece| make(&mut beside(), piece))
        } else {
            pieces.into_par_iter().try_for_each_init(beside, make)
        };
        done?;

        let tensor = |(numbers, step): (Option<Vec<f32>>, &Rows)| {
            let shape = shaped(leading, step);
            Ok(numbers.map(|own| Tensor::from_vec(own, shape, &Device::Cpu)).transpose()?)
        };
        values.into_iter().zip(steps).map(tensor).collect()
    }
}

/// The shape of a value with these rows.
fn shaped(leading: &[usize], rows: &Rows) -> Vec<usize> {
    let columns = if rows.has_axis { &[rows.columns][..] } else { &[] };
    [leading, columns].concat()
}

/// Some rows of a chain: which they are, those that are read, and where those of each step belong that are kept.
type Piece<'p> = (Range<usize>, &'p [f32], Vec<Option<&'p mut [f32]>>);

/// Rows in pieces of about so many: of some rows of one matrix, or of several whole ones. They depend on the sizes alone, so
/// that no number depends on how many threads there are.
fn pieces_of(count: usize, of_matrix: usize, most: usize) -> Vec<Range<usize>> {
    let of_matrix = of_matrix.max(1);
    let whole = (most / of_matrix).max(1) * of_matrix;
    let parts = of_matrix.div_ceil(most.max(1));
    let starts = (0..count).step_by(whole).flat_map(|start| {
        let end = count.min(start + whole);
        let part = move |at: usize| start + (end - start) * at / parts;
        (0..parts).map(move |at| part(at)..part(at + 1))
    });
    starts.collect()
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::Axis::{self, Batch, Head, HeadDim, Key, Query};
    use crate::operation::by_rows as alone;
    use crate::ops::{Collect, Gradient};
    use crate::{
        Axes, EmptyRow, Fill, Given, Linear, Masking, Name, Operation, Program, Scaling, Weighting,
    };

    fn numbers(shape: &[usize]) -> Tensor {
        let count: usize = shape.iter().product();
        let numbers = (0..count).map(|at| (at * 37 % 1013) as f32 / 700.0 - 0.7);
        Tensor::from_vec(numbers.collect(), shape, &Device::Cpu).expect("fits")
    }

    fn bits(tensor: &Tensor) -> Vec<u32> {
        let flat = tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("f32");
        flat.into_iter().map(f32::to_bits).collect()
    }

    /// How far two tensors are apart at most, for every unit that the second one's numbers are large.
    fn apart(own: &Tensor, twin: &Tensor) -> f64 {
        let [own, twin] = [own, twin].map(|tensor| tensor.to_dtype(DType::F64).expect("widens"));
        let far = own.sub(&twin).and_then(|apart| apart.abs()?.max_all()).expect("fits");
        let most = twin.abs().and_then(|twin| twin.max_all()).expect("fits");
        far.to_scalar::<f64>().expect("a number") / most.to_scalar::<f64>().expect("a number")
    }

    /// Sizes of which the matrices are in several pieces, in one, or many to a piece.
    const SIZES: [[usize; 5]; 4] =
        [[2, 3, 301, 700, 20], [1, 2, 1, 1000, 8], [3, 5, 7, 9, 2], [1, 1, 2, 1, 1]];

    #[test]
    fn rows_are_those_of_the_whole_value() {
        for [batch, heads, queries, keys, features] in SIZES {
            let scores = numbers(&[batch, heads, queries, keys]);
            let one_by_one: [&dyn Operation; 2] =
                [&Scaling::Root { head_dim: 7, terms: 1 }, &Scaling::By { factor: 0.3 }];
            for operation in one_by_one {
                let own = alone(operation, &[&scores]).expect("f32");
                assert_eq!(bits(&own), bits(&operation.value(&[&scores]).expect("fits")));
            }
            let q = numbers(&[batch, heads, queries, features]);
            let k = numbers(&[batch, heads, keys, features]);
            // Each of the two sums of so many products is off by no more than so many roundings.
            let rounding = |terms: usize| 2.0 * terms as f64 * f64::from(f32::EPSILON);
            let own = alone(&Linear::DotProduct, &[&q, &k]).expect("f32");
            let twin = Linear::DotProduct.value(&[&q, &k]).expect("fits");
            assert!(apart(&own, &twin) <= rounding(features));
            let own = alone(&Linear::WeightedSum, &[&scores, &k]).expect("f32");
            let twin = Linear::WeightedSum.value(&[&scores, &k]).expect("fits");
            assert!(apart(&own, &twin) <= rounding(keys));
            let axes = vec![(Batch, batch), (Head, heads), (Query, queries), (Key, keys)];
            let sum = Gradient::Collect(Collect::over_last(&Axes::new(axes)));
            let d = scores.affine(0.3, 0.1).expect("scaled");
            let delta = alone(&sum, &[&d, &scores]).expect("f32");
            let twin = sum.value(&[&d, &scores]).expect("fits");
            assert_eq!(delta.dims(), [batch, heads, queries]);
            assert!(apart(&delta, &twin) <= rounding(keys));
            let inputs = [&scores, &d, &delta];
            let own = alone(&Gradient::Softmax, &inputs).expect("f32");
            assert_eq!(bits(&own), bits(&Gradient::Softmax.value(&inputs).expect("fits")));
        }
    }

    /// f32 has 2^−24 of rounding in each of three places: the exponential, the sum and the quotient.
    #[test]
    fn softmax_is_that_of_f64_but_for_rounding() {
        let softmax = Weighting::softmax(EmptyRow::Nan);
        for shape in [&[3, 5][..], &[2, 1], &[2, 4, 64, 513]] {
            let x = numbers(shape).affine(60.0, 0.0).expect("scaled");
            let own = alone(&softmax, &[&x]).expect("f32").to_dtype(DType::F64).expect("widened");
            let twin = x.to_dtype(DType::F64).expect("widened");
            let twin = candle_nn::ops::softmax_last_dim(&twin).expect("fits");
            let apart = (own.sub(&twin).and_then(|apart| apart.abs())).expect("fits");
            let allowed = (twin * (3.0 / f64::from(1 << 24))).expect("fits");
            let allowed = (allowed + f64::from(f32::from_bits(1))).expect("fits");
            let most = apart.sub(&allowed).and_then(|most| most.max_all()).expect("fits");
            assert!(most.to_scalar::<f64>().expect("a number") <= 0.0, "{shape:?}");
        }
        let x = Tensor::new(&[[f32::NEG_INFINITY; 3], [0.0, f32::NAN, 1.0]], &Device::Cpu);
        let shares = alone(&softmax, &[&x.expect("fits")]).expect("f32");
        assert!(shares.to_vec2::<f32>().expect("f32").concat().iter().all(|share| share.is_nan()));
    }

    /// Masks of every shape that a run has, as `where_cond` fills them.
    #[test]
    fn filling_gives_the_bits_of_candle() {
        let x = numbers(&[3, 4, 80, 90]);
        let fill = Masking::Fill { fill: Fill(-1e9) };
        for shape in [&[80, 90][..], &[3, 1, 80, 90], &[3, 1, 1, 90], &[1, 4, 80, 1], &[1, 1]] {
            let mask = numbers(shape).gt(0.0).expect("booleans");
            let turned = mask.contiguous().expect("fits");
            for mask in [&mask, &turned] {
                let own = alone(&fill, &[&x, mask]).expect("f32");
                assert_eq!(bits(&own), bits(&fill.value(&[&x, mask]).expect("fits")), "{shape:?}");
            }
        }
        let turned = numbers(&[90, 80]).gt(0.0).and_then(|mask| mask.t()).expect("turns");
        let own = alone(&fill, &[&x, &turned]).expect("f32");
        assert_eq!(bits(&own), bits(&fill.value(&[&x, &turned]).expect("fits")));
        assert!(alone(&fill, &[&x, &numbers(&[7]).gt(0.0).expect("booleans")]).is_none());
        assert!(alone(&fill, &[&x.transpose(2, 3).expect("turns"), &turned]).is_none());
    }

    #[test]
    fn a_row_of_steps_gives_the_bits_of_each_alone() {
        for [batch, heads, queries, keys, features] in SIZES {
            let axes = |rows: Axis, count: usize, last: Axis, of: usize| {
                Axes::new(vec![(Batch, batch), (Head, heads), (rows, count), (last, of)])
            };
            let mut program = Program::default();
            let q = program.given(Name::QHeads, axes(Query, queries, HeadDim, features));
            let k = program.given(Name::KHeads, axes(Key, keys, HeadDim, features));
            let v = program.given(Name::VHeads, axes(Key, keys, HeadDim, features));
            let mask = program.given(Name::Mask, Axes::new(vec![(Query, queries), (Key, keys)]));
            let mut then = |name, op: crate::Op, inputs: &[usize]| {
                program.then(name, op, inputs).expect("fits")
            };
            let raw = then(Name::ScoresRaw, Linear::DotProduct.into(), &[q, k]);
            let scores =
                then(Name::Scores, Scaling::Root { head_dim: features, terms: 1 }.into(), &[raw]);
            let fill = Masking::Fill { fill: Fill(-1e9) };
            let masked = then(Name::MaskedScores, fill.into(), &[scores, mask]);
            let weights = then(Name::Weights, Weighting::softmax(EmptyRow::Nan).into(), &[masked]);
            then(Name::HeadOutputs, Linear::WeightedSum.into(), &[weights, v]);
            let given: Given = program
                .steps()
                .iter()
                .filter(|step| step.inputs.is_empty())
                .map(|step| {
                    let own = numbers(&step.axes.shape());
                    let is_mask = step.name == Name::Mask;
                    (step.name, if is_mask { own.gt(0.5).expect("booleans") } else { own })
                })
                .collect();
            let trace = program.run(&given).expect("runs");
            let value = |at: usize| trace.steps().get(at).map(|step| &step.value);
            let chain = program.chain(4, value).expect("f32");
            assert_eq!(chain.len(), 5, "all at once");
            for step in trace.steps().iter().filter(|step| step.is_computed()) {
                let again = trace.replay(step).expect("runs");
                assert_eq!(bits(&again), bits(&step.value), "{}", step.name);
            }
        }
    }

    #[test]
    fn pieces_hold_every_row_once() {
        for (count, of_matrix, most) in [(12, 4, 3), (12, 4, 9), (1, 1, 1), (30, 10, 4), (7, 7, 0)]
        {
            let pieces = pieces_of(count, of_matrix, most);
            assert_eq!(
                pieces.iter().cloned().flatten().collect::<Vec<_>>(),
                (0..count).collect::<Vec<_>>()
            );
            let is_in_one = |piece: &Range<usize>| {
                piece.len() <= most.max(1) && piece.start / of_matrix == (piece.end - 1) / of_matrix
                    || [piece.start, piece.end].iter().all(|end| end.is_multiple_of(of_matrix))
            };
            assert!(pieces.iter().all(is_in_one), "{pieces:?}");
        }
    }
}
