//! Queries, keys and values in few bits: which tensors of a file are their scales and zero points, and how are they to be
//! read?

use candle_core::{DType, Tensor};

use super::arranged::{Qkv, arranged};
use super::matched::Match;
use super::names::{is_called, meanings};
use super::numbers::numbers;
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
    record.entries.iter().find(|entry| is_called(&entry.name, OFFSETS[slot]))
}

/// What scales of blocks are multiplied by.
const GLOBAL: [&str; 3] = ["q_global_scale", "k_global_scale", "v_global_scale"];

/// What the numbers of a tensor are codes of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Codes {
    /// The numbers themselves.
    Numbers,
    /// Bytes of floating-point numbers in 8 bits.
    Bytes(EightBits),
    /// Several numbers in each byte or word.
    Packed {
        /// How many.
        count: usize,
        /// In which order they stand.
        order: Order,
        /// What they are.
        own: EightBits,
        /// What is subtracted from them.
        less: f64,
    },
}

/// In which order the numbers stand that bytes or words hold several of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    LowFirst,
    HighFirst,
    Parts,
}

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
        let (tensors, matches) = (Vec::new(), Vec::new());
        let is_tentative = false;
        let mut read = Qkv { format, start, heads: None, tensors, matches, is_tentative };
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

impl Codes {
    /// The numbers that codes are, and that in words.
    fn numbers(self, stored: &Tensor) -> Result<(Tensor, String)> {
        // Words of 32 bits hold 8 of 4 bits or 4 of 8; bytes, with a sign or without, hold 2 of 4.
        let words = || -> Result<(Vec<u32>, bool)> {
            let words = stored.flatten_all()?.to_dtype(DType::I64)?.to_vec1::<i64>()?;
            let is_word = words.iter().any(|word| !(-128..256).contains(word));
            let bits = if is_word { u32::MAX } else { 255 };
            Ok((words.into_iter().map(|word| low(word) & bits).collect(), is_word))
        };
        match self {
            Self::Numbers => Ok((stored.to_dtype(DType::F64)?, String::new())),
            Self::Bytes(own) => {
                let numbers = words()?.0.into_iter().map(|word| own.number(byte(word)));
                let numbers = Tensor::from_iter(numbers, stored.device())?;
                let how = tr!("bytes of {name}", name = own.name());
                Ok((numbers.reshape(stored.shape())?, how))
            }
            Self::Packed { count, order, own, less } => {
                let (words, is_word) = words()?;
                let bits = if is_word { 32 / count } else { 8 / count };
                let own = if bits > 4 { EightBits::Uint8 } else { own };
                let number = |word: u32, at: usize| {
                    let code = word >> (bits * at) & ((1 << bits) - 1);
                    f64::from(own.number(byte(code))) - less
                };
                let mut shape = stored.dims().to_vec();
                let width = shape.last().copied().unwrap_or_default();
                let at = |place: usize| match order {
                    Order::LowFirst => (place / count, place % count),
                    Order::HighFirst => (place / count, count - 1 - place % count),
                    Order::Parts => (place % width, place / width),
                };
                let row = |row: &[u32]| -> Vec<f64> {
                    let places = (0..width * count).map(at);
                    places.map(|(word, place)| number(row[word], place)).collect()
                };
                let numbers: Vec<f64> = words.chunks_exact(width.max(1)).flat_map(row).collect();
                if let Some(last) = shape.last_mut() {
                    *last *= count;
                }
                let how = match order {
                    Order::LowFirst => tr!("{count} in each, the lowest bits first", count),
                    Order::HighFirst => tr!("{count} in each, the highest bits first", count),
                    Order::Parts => {
                        tr!("{count} in each, those of a row's lowest bits first", count)
                    }
                };
                let how = if less > 0.0 { tr!("{how}, less {less}", how, less) } else { how };
                Ok((Tensor::from_vec(numbers, shape, stored.device())?, how))
            }
        }
    }
}

/// The low bits of a whole number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what it is for")]
fn low(number: i64) -> u32 {
    number as u32
}

/// The lowest byte of a word.
#[allow(clippy::cast_possible_truncation, reason = "what it is for")]
fn byte(word: u32) -> u8 {
    word as u8
}

/// The ways to put axes of these lengths under those of what is stored, each with what it costs to think so: an axis is as
/// long, of length 1, or has one for each group of places, along the features sooner than elsewhere.
fn placings(own: &[usize], stored: &[usize]) -> Vec<(usize, Vec<usize>)> {
    let rank = stored.len();
    if own.iter().product::<usize>() == 1 {
        return vec![(0, vec![1; rank])];
    }
    if own.len() > rank {
        return Vec::new();
    }
    let mut all: Vec<(usize, Vec<usize>)> = Vec::new();
    for chosen in 0..1_u32 << rank {
        let places: Vec<usize> = (0..rank).filter(|at| chosen >> at & 1 == 1).collect();
        let fits =
            |(length, at): (&usize, &usize)| *length > 0 && stored[*at].is_multiple_of(*length);
        if places.len() != own.len() || !own.iter().zip(&places).all(fits) {
            continue;
        }
        // One scale for each item alone is rare.
        let is_of_items = rank == 4 && places == [0] && own != [1];
        let (mut shape, mut cost) = (vec![1; rank], usize::from(is_of_items));
        for (length, at) in own.iter().zip(places) {
            shape[at] = *length;
            let is_group = *length > 1 && *length != stored[at];
            cost += if !is_group {
                0
            } else if at + 1 == rank {
                2
            } else {
                3
            };
        }
        if !all.iter().any(|(_, other)| *other == shape) {
            all.push((cost, shape));
        }
    }
    all
}

/// Whether scales of this shape stand for groups of places of an axis.
fn is_grouped(shape: &[usize], stored: &[usize]) -> bool {
    shape.iter().zip(stored).any(|(own, all)| *own > 1 && own != all)
}

/// The shape, of as many axes as what is stored, of offsets that stand for all of some axes and for each place of the
/// others, as the mean of the keys does.
pub(super) fn whole(offset: &Entry, stored: &[usize]) -> Option<Vec<usize>> {
    let all = placings(offset.tensor.dims(), stored).into_iter();
    let is_whole =
        |shape: &Vec<usize>| shape.iter().zip(stored).all(|(own, all)| *own == 1 || own == all);
    // A mean has its features.
    let last = |shape: &Vec<usize>| shape.last() != stored.last();
    all.map(|(_, shape)| shape).filter(is_whole).min_by_key(last)
}

/// Which part of the shares with one scale each has the largest code that there is, or the smallest.
fn share_at_most(codes: &[f64], dims: &[usize], shape: &[usize]) -> f64 {
    let mut most = vec![0.0_f64; shape.iter().product()];
    let mut place = vec![0; dims.len()];
    let (first, last) =
        codes.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), own| {
            (low.min(*own), high.max(*own))
        });
    // Codes from 0 up are counted from their middle.
    let middle = if first >= 0.0 { f64::midpoint(first, last) } else { 0.0 };
    for code in codes {
        let at = place
            .iter()
            .zip(shape.iter().zip(dims))
            .fold(0, |at, (place, (own, all))| at * own + place * own / (*all).max(1));
        if let Some(most) = most.get_mut(at) {
            *most = most.max((code - middle).abs());
        }
        for (own, all) in place.iter_mut().zip(dims).rev() {
            *own += 1;
            if *own < *all {
                break;
            }
            *own = 0;
        }
    }
    let largest = most.iter().copied().fold(0.0, f64::max);
    // int4 and int8 end one lower than they begin.
    let reaching = most.iter().filter(|own| **own >= largest - 1.0).count();
    reaching as f64 / most.len().max(1) as f64
}

/// Scales of other axes leave fewer of their shares with the largest code.
const FEW_AT_MOST: f64 = 0.75;

/// Of fewer shares, a few may have the largest code by chance.
const MANY_SHARES: usize = 4;

/// Scales in a shape of as many axes as what is stored, each whole or 1: one of a group stands for all of it.
fn spread(tensor: &Tensor, shape: &[usize], stored: &[usize]) -> candle_core::Result<Tensor> {
    let mut spread = tensor.reshape(shape)?;
    for (at, (own, all)) in shape.iter().zip(stored).enumerate() {
        if own == all || *own == 1 {
            continue;
        }
        let places: Vec<u32> =
            (0..*all).filter_map(|place| u32::try_from(place * own / all).ok()).collect();
        spread = spread.index_select(&Tensor::new(places, tensor.device())?, at)?;
    }
    Ok(spread)
}

/// What there is a scale of.
pub(super) fn told(shape: &[usize], stored: &[usize], names: &[&str]) -> String {
    let own = names.iter().zip(shape.iter().zip(stored)).filter(|(_, (own, _))| **own > 1);
    let own = own.map(|(name, (own, all))| {
        if own == all {
            (*name).to_owned()
        } else {
            tr!("group of {count} {name}s", count = all / own, name)
        }
    });
    let own: Vec<String> = own.collect();
    if own.is_empty() {
        tr!("one for all").to_owned()
    } else {
        tr!("one for each {own}", own = own.join(tr!(" and ")))
    }
}

#[cfg(test)]
mod tests {
    use super::placings;

    #[test]
    fn more_axes_than_are_stored_have_no_place() {
        assert_eq!(placings(&[1, 1, 1, 2, 3], &[2, 4, 3]), []);
        assert_eq!(placings(&[1, 1, 1, 1, 1], &[2, 4, 3]), [(0, vec![1; 3])]);
        assert_eq!(placings(&[3], &[2, 4, 3]), [(0, vec![1, 1, 3])]);
    }
}
