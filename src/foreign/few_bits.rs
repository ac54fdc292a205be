//! Queries, keys and values in few bits: which tensors of a file are their scales and zero points, and how are they to be
//! read?

use candle_core::{DType, Tensor};

use super::arranged::{Qkv, arranged};
use super::codes::{Codes, Order};
use super::matched::Match;
use super::names::{is_called, meanings};
use super::numbers::numbers;
use super::scale_axes::{is_grouped, placings, share_at_most, spread, told, whole};
use base::error::{Result, quoted};
use config::{QkvFormat, Start};
use file::{Entry, Record};
use program::{EightBits, Name};

/// What is added to scaled numbers in place of a zero point that is subtracted before: `Code · scale + offset`.
const OFFSETS: [&[&str]; 3] = [
    &["q_offset", "q_offsets", "q_mean"],
    &["k_offset", "k_offsets", "k_min", "k_mn", "k_biases", "keys_biases", "k_mean", "km"],
    &["v_offset", "v_offsets", "v_min", "v_mn", "v_biases", "values_biases", "v_mean", "vm"],
];

/// What is added to scaled queries, keys or values.
pub(super) fn offset_of(record: &Record, slot: usize) -> Option<&Entry> {
    record.entries.iter().find(|entry| is_offset(entry, slot))
}

/// Whether that is what an entry is called.
pub(super) fn is_offset(entry: &Entry, slot: usize) -> bool {
    is_called(&entry.name, OFFSETS[slot])
}

/// What scales of blocks are multiplied by.
const GLOBAL: [&str; 3] = ["q_global_scale", "k_global_scale", "v_global_scale"];

/// The ways to read queries, keys and values of which some have scales beside them; none where no one has.
///
/// # Errors
/// If candle fails.
pub fn in_few_bits(record: &Record, entries: [&Entry; 3], format: QkvFormat) -> Result<Vec<Qkv>> {
    let slots = [0, 1, 2].map(|slot| Slot::of(record, slot, entries[slot]));
    if slots.iter().all(|slot| slot.scale.is_none()) {
        return Ok(Vec::new());
    }
    let mut all = read_as(&slots, &entries, format)?;
    // Softmax does not see the mean of the keys, and nothing that was recorded does where there is no log-sum-exp.
    let has_lse = record.entries.iter().any(|entry| meanings(&entry.name).contains(&Name::Lse));
    let [queries, keys, values] = slots;
    if !has_lse && keys.has_mean() {
        let keys = Slot { offset: None, ..keys };
        all.extend(read_as(&[queries, keys, values], &entries, format)?);
    }
    Ok(all)
}

/// The ways to read these, of which some have scales.
fn read_as(slots: &[Slot; 3], entries: &[&Entry; 3], format: QkvFormat) -> Result<Vec<Qkv>> {
    let features = entries[0].tensor.dims().last().copied().unwrap_or_default();
    let mut all = Vec::new();
    for (codes, placed) in ways(&slots.each_ref(), features)? {
        let start = Start::Heads;
        let mut read = Qkv::of(format, start, None);
        let mut beside = Vec::new();
        for (slot, shape) in slots.iter().zip(&placed) {
            slot.read(codes, shape.as_deref(), format, (&mut read, &mut beside))?;
        }
        read.tensors.extend(beside);
        all.push(read);
    }
    Ok(all)
}

/// The shapes of the scales of several tensors, as [`Slot::placings`] has them.
type Placed = Vec<Option<Vec<usize>>>;

/// The ways to read what has scales beside it, the likeliest first: what it is codes of, and the shapes of the scales.
///
/// # Errors
/// If candle fails.
pub(super) fn ways(slots: &[&Slot], features: usize) -> Result<Vec<(Codes, Placed)>> {
    let all = codes(slots, features)?.into_iter();
    Ok(all
        .flat_map(|codes| together(slots, codes).into_iter().map(move |own| (codes, own)))
        .collect())
}

/// So many ways to place scales are tried.
const WAYS: usize = 4;

/// The shapes that the scales of queries, keys and values can have together, the likeliest first: those of as many axes
/// stand under the same ones.
fn together(slots: &[&Slot], codes: Codes) -> Vec<Placed> {
    let dims: Vec<Vec<usize>> = slots.iter().map(|slot| slot.dims(codes)).collect();
    let mut all = vec![(0, Vec::new())];
    for slot in slots {
        let own = slot.placings(codes);
        let mut longer = Vec::new();
        for (cost, placed) in &all {
            for (more, shape) in &own {
                let axes = |shape: &Option<Vec<usize>>| {
                    let shape = shape.as_deref().unwrap_or_default();
                    (0..shape.len()).filter(|at| shape[*at] > 1).collect::<Vec<_>>()
                };
                let differs = |other: &&Option<Vec<usize>>| {
                    let (own, other) = (axes(shape), axes(other));
                    own.len() == other.len() && own != other
                };
                let apart = placed.iter().filter(differs).count();
                longer.push((
                    cost + more + 4 * apart,
                    [&placed[..], std::slice::from_ref(shape)].concat(),
                ));
            }
        }
        all = longer;
    }
    all.sort_by_key(|(cost, _)| *cost);
    let all: Vec<Placed> = all.into_iter().map(|(_, placed)| placed).collect();
    // Scales of whole axes are the plainest: they are tried wherever they fit.
    let is_plain = |placed: &&Placed| {
        let mut own = placed.iter().zip(&dims);
        own.all(|(shape, dims)| shape.as_ref().is_none_or(|shape| !is_grouped(shape, dims)))
    };
    let plain = all.iter().skip(WAYS).find(is_plain).cloned();
    let has_plain = all.iter().take(WAYS).any(|placed| is_plain(&placed));
    all.into_iter().take(WAYS).chain(plain.filter(|_| !has_plain)).collect()
}

/// What the codes may be, the likeliest first.
fn codes(slots: &[&Slot], features: usize) -> Result<Vec<Codes>> {
    let stored: Vec<&&Slot> = slots.iter().filter(|slot| slot.scale.is_some()).collect();
    if stored.is_empty() {
        return Ok(vec![Codes::Numbers]);
    }
    let is_packed = |count: &usize| {
        let is_it = |slot: &&&Slot| {
            let last = slot.stored.tensor.dims().last().copied().unwrap_or_default();
            last.checked_mul(*count) == Some(features) && slot.stored.tensor.dtype() == DType::I64
        };
        stored.iter().any(is_it)
    };
    let has_zero = stored.iter().any(|slot| slot.zero.is_some() || slot.offset.is_some());
    if let Some(count) = [2, 4, 8].into_iter().find(is_packed) {
        let whole = [(EightBits::Uint4, 8.0), (EightBits::Int4, 0.0), (EightBits::Uint4, 0.0)];
        let all = if has_zero { &whole[2..] } else { &whole[..2] };
        let is_fp4 = |slot: &&&Slot| slot.stored.name.to_ascii_lowercase().contains("fp4");
        let floats = [(EightBits::E2m1, 0.0)];
        let all = if stored.iter().any(is_fp4) { &floats[..] } else { all };
        let orders = [Order::LowFirst, Order::Parts, Order::HighFirst];
        let codes = orders.into_iter().flat_map(|order| {
            all.iter().map(move |(own, less)| Codes::Packed {
                count,
                order,
                own: *own,
                less: *less,
            })
        });
        return Ok(codes.collect());
    }
    let mut are_bytes = !has_zero;
    for slot in stored {
        let tensor = &slot.stored.tensor;
        let is_byte = |number: &f64| (0.0..=255.0).contains(number);
        are_bytes &= tensor.dtype() == DType::I64 && numbers(tensor)?.iter().all(is_byte);
    }
    let bytes = [EightBits::E4m3, EightBits::E5m2].map(Codes::Bytes);
    Ok(std::iter::once(Codes::Numbers).chain(bytes.into_iter().filter(|_| are_bytes)).collect())
}

/// Scales of other axes leave fewer of their shares with the largest code.
const FEW_AT_MOST: f64 = 0.75;

/// Of fewer shares, a few may have the largest code by chance.
const MANY_SHARES: usize = 4;

/// Queries, keys or values, and what stands beside them.
pub(super) struct Slot<'r> {
    names: [Name; 5],
    stored: &'r Entry,
    scale: Option<&'r Entry>,
    global: Option<&'r Entry>,
    zero: Option<&'r Entry>,
    offset: Option<&'r Entry>,
}

impl<'r> Slot<'r> {
    pub(super) fn of(record: &'r Record, slot: usize, stored: &'r Entry) -> Self {
        let names = Name::FEW_BITS[slot];
        let [_, _, scale, zero, _] = names;
        let find =
            |is_it: &dyn Fn(&Entry) -> bool| record.entries.iter().find(|entry| is_it(entry));
        let called = |step: Name| find(&|entry| meanings(&entry.name).contains(&step));
        let scale = called(scale);
        let global = find(&|entry| is_called(&entry.name, &GLOBAL[slot..=slot]));
        let offset = offset_of(record, slot);
        Self { names, stored, scale, global, zero: called(zero), offset }
    }

    /// Whether what is added to its numbers is a mean, of other axes than their scales.
    fn has_mean(&self) -> bool {
        self.scale
            .zip(self.offset)
            .is_some_and(|(scale, offset)| scale.tensor.elem_count() != offset.tensor.elem_count())
    }

    /// The shape of what is stored, unpacked.
    fn dims(&self, codes: Codes) -> Vec<usize> {
        let mut dims = self.stored.tensor.dims().to_vec();
        if let (Codes::Packed { count, .. }, Some(last)) = (codes, dims.last_mut()) {
            *last *= count;
        }
        dims
    }

    /// The shapes, of as many axes as what is stored, that its scales can have, each with what it costs to think so; one
    /// that is none where there are no scales, or none that fit.
    fn placings(&self, codes: Codes) -> Vec<(usize, Option<Vec<usize>>)> {
        let dims = self.dims(codes);
        let mut all = self.scale.map_or_else(Vec::new, |own| placings(own.tensor.dims(), &dims));
        if all.len() > 1 {
            self.by_reach(codes, &dims, &mut all);
        }
        if all.is_empty() {
            return vec![(0, None)];
        }
        all.into_iter().map(|(cost, shape)| (cost, Some(shape))).collect()
    }

    /// Puts first those shapes of scales that the numbers speak for: what shares a scale was divided by its own largest
    /// number, so that each share has the largest code.
    fn by_reach(&self, codes: Codes, dims: &[usize], all: &mut Vec<(usize, Vec<usize>)>) {
        let numbers = codes.numbers(&self.stored.tensor).and_then(|(own, _)| numbers(&own));
        let Ok(numbers) = numbers else { return };
        let share = |shape: &[usize]| share_at_most(&numbers, dims, shape);
        let shares: Vec<f64> = all.iter().map(|(_, shape)| share(shape)).collect();
        let of_one = shares.iter().map(|share| *share >= 1.0);
        for (((cost, _), share), is_whole) in all.iter_mut().zip(&shares).zip(of_one) {
            if !is_whole {
                *cost += if *share < FEW_AT_MOST { 6 } else { 3 };
            }
        }
        if shares.iter().any(|share| *share >= 1.0) {
            let count = |shape: &[usize]| shape.iter().product::<usize>();
            let mut shares = shares.iter();
            all.retain(|(_, shape)| {
                let share = shares.next().copied().unwrap_or(1.0);
                // Scales that are set beforehand do not reach it; those of groups come with their codes.
                share >= FEW_AT_MOST || count(shape) < MANY_SHARES || !is_grouped(shape, dims)
            });
        }
    }

    /// Adds the slot's tensors to one way to read all, in which its scales have this shape.
    fn read(
        &self,
        codes: Codes,
        shape: Option<&[usize]>,
        format: QkvFormat,
        (read, beside): (&mut Qkv, &mut Vec<(Name, Tensor)>),
    ) -> Result<()> {
        let in_order = |tensor: &Tensor| {
            let name = quoted(&self.stored.name);
            arranged(&name, tensor, format, Some(Start::Heads)).map(|(_, tensor)| tensor)
        };
        let axes: &[&str] = match (self.stored.tensor.rank(), format) {
            (4, QkvFormat::Bhsd) => &["batch", "head", "token", "feature"],
            (4, QkvFormat::Bshd) => &["batch", "token", "head", "feature"],
            (4, _) => &["token", "batch", "head", "feature"],
            (3, QkvFormat::Bhsd) => &["head", "token", "feature"],
            (3, _) => &["token", "head", "feature"],
            _ => &["token", "feature"],
        };
        let Parts { name, numbers, how, beside: own } = self.parts(codes, shape, axes)?;
        read.tensors.push((name, in_order(&numbers)?));
        let matched = Match::as_it_is(name.as_str(), self.name());
        read.matches.push(if how.is_empty() { matched } else { matched.read(how) });
        for Beside { name, numbers, matched } in own {
            beside.push((name, in_order(&numbers)?));
            read.matches.push(matched);
        }
        Ok(())
    }

    /// The name of the tensor that is stored.
    pub(super) fn name(&self) -> &'r str {
        &self.stored.name
    }

    /// What is stored on these axes, and its scales of this shape; none where it has none.
    pub(super) fn parts(
        &self,
        codes: Codes,
        shape: Option<&[usize]>,
        axes: &[&str],
    ) -> Result<Parts> {
        let [heads, own, scale_name, zero_name, _] = self.names;
        let (Some(scale), Some(shape)) = (self.scale, shape) else {
            let (numbers, how) = (self.stored.tensor.clone(), String::new());
            return Ok(Parts { name: heads, numbers, how, beside: Vec::new() });
        };
        let (numbers, how) = codes.numbers(&self.stored.tensor)?;
        let dims = self.dims(codes);
        let wide = |tensor: &Tensor| tensor.to_dtype(DType::F64);
        let mut scales = spread(&scale.tensor, shape, &dims)?;
        let mut of = told(shape, &dims, axes);
        if let Some(global) = self.global.filter(|own| own.tensor.elem_count() == 1) {
            scales = wide(&scales)?.broadcast_mul(&wide(&global.tensor.flatten_all()?)?)?;
            of = tr!("{how}, times {name}", how = of, name = quoted(&global.name));
        }
        let taken = |step: Name, entry: &Entry| Match::as_it_is(step.as_str(), &entry.name);
        let is_like = |own: &&Entry| own.tensor.elem_count() == scale.tensor.elem_count();
        let zero = if let Some(zero) = self.zero.filter(|zero| zero.tensor.elem_count() == 1) {
            let one = zero.tensor.flatten_all()?.broadcast_as(scales.shape())?.contiguous()?;
            Some((one, taken(zero_name, zero)))
        } else if let Some(zero) = self.zero.filter(is_like) {
            Some((spread(&zero.tensor, shape, &dims)?, taken(zero_name, zero)))
        } else if let Some((offset, shape)) = self.offset.and_then(|own| {
            let own_shape = if is_like(&own) { Some(shape.to_vec()) } else { whole(own, &dims) };
            Some((own, own_shape?))
        }) {
            let offsets = wide(&spread(&offset.tensor, &shape, &dims)?)?;
            let zero = offsets.neg()?.broadcast_div(&wide(&scales)?)?;
            let how = tr!("over the scale, with the other sign");
            Some((zero, taken(zero_name, offset).read(how)))
        } else {
            None
        };
        let matched = taken(scale_name, scale).read(of);
        let scales = Beside { name: scale_name, numbers: scales, matched };
        let zero = zero.map(|(numbers, matched)| Beside { name: zero_name, numbers, matched });
        Ok(Parts { name: own, numbers, how, beside: std::iter::once(scales).chain(zero).collect() })
    }
}

/// Queries, keys or values as one way to read them has it.
pub(super) struct Parts {
    /// What they are: heads, or numbers in few bits.
    pub name: Name,
    pub numbers: Tensor,
    /// How the numbers are stored, if that is worth telling.
    pub how: String,
    /// Their scales and zero points.
    pub beside: Vec<Beside>,
}

/// Scales or zero points, whole along each axis of what is stored, or 1.
pub(super) struct Beside {
    pub name: Name,
    pub numbers: Tensor,
    pub matched: Match,
}
