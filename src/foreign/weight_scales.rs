//! Weights in few bits beside the scales that they stand for numbers by, as quantised checkpoints keep them.

use std::cell::RefCell;
use std::collections::HashMap;

use candle_core::{DType, Tensor};

use super::matched::Match;
use super::names::last_segment;
use super::numbers::numbers;
use super::scale_axes::told;
use base::error::{Error, Result};
use program::Name;

/// What scales are called in place of `weight`, and what each is multiplied by. `DeepSeek` calls them inverse, and means what
/// codes are multiplied by; bitsandbytes keeps the largest number of each row, which is 127 of int8.
const SCALES: &[(&str, f64)] = &[
    ("weight_scale_inv", 1.0),
    ("weight_scale", 1.0),
    ("scale_weight", 1.0),
    ("SCB", 1.0 / 127.0),
];

/// Whether a tensor is called as scales are.
pub fn is_weight_scale(name: &str) -> bool {
    SCALES.iter().any(|(called, _)| last_segment(name) == *called)
}

/// So long are the blocks of a matrix of fp8 along each axis; the last one may be shorter.
const BLOCK: usize = 128;

/// The largest numbers of types of fp8, which a matrix is scaled to.
const LARGEST: [f64; 3] = [240.0, 448.0, 57344.0];

/// What the weights of a layer were multiplied by.
#[derive(Debug, Clone, Default)]
pub struct WeightScales {
    /// For each weight its scales, as long as it is along each axis.
    pub factors: HashMap<Name, Tensor>,
    /// Whether the numbers tell that they are codes, and no weights that were scaled before.
    pub are_codes: bool,
}

/// Reads tensors of a file, and scales back those in few bits.
pub struct Scaled<'r, R> {
    read: &'r R,
    /// Which scales were taken.
    pub matches: RefCell<Vec<Match>>,
    /// The scales of each tensor, as long as it is along each axis, and whether it holds codes for certain.
    factors: RefCell<HashMap<String, (Tensor, bool)>>,
}

impl<'r, R: Fn(&str) -> Result<Option<Tensor>>> Scaled<'r, R> {
    pub fn by(read: &'r R) -> Self {
        Self { read, matches: RefCell::default(), factors: RefCell::default() }
    }

    /// The scales of the weights that were read, by what was taken as what. `lay_out` makes of them what it made of the weights
    /// themselves.
    pub fn scales(
        &self,
        matches: &[Match],
        lay_out: impl Fn(&dyn Fn(&str) -> Result<Option<Tensor>>) -> Result<HashMap<Name, Tensor>>,
    ) -> Result<WeightScales> {
        let factors = self.factors.borrow();
        if factors.is_empty() {
            return Ok(WeightScales::default());
        }
        let laid_out = lay_out(&|name| match factors.get(name) {
            Some((factor, _)) => Ok(Some(factor.clone())),
            None => Ok((self.read)(name)?.map(|own| own.ones_like()).transpose()?),
        })?;
        let is_scaled = |name: &Name| {
            let mut own = matches.iter().filter(|own| own.step == name.as_str());
            own.any(|own| factors.contains_key(&own.tensor))
        };
        let scales = laid_out.into_iter().filter(|(name, _)| is_scaled(name));
        let are_codes = factors.values().all(|(_, are_codes)| *are_codes);
        Ok(WeightScales { factors: scales.collect(), are_codes })
    }

    /// The tensor of a name, scaled back where it is a weight with a scale.
    ///
    /// # Errors
    /// If it cannot be read, or the scale fits no axes of it.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor>> {
        let Some(weight) = (self.read)(name)? else { return Ok(None) };
        let Some(module) = name.strip_suffix("weight") else { return Ok(Some(weight)) };
        for (called, unit) in SCALES {
            let scale_name = format!("{module}{called}");
            let Some(scale) = (self.read)(&scale_name)? else { continue };
            let Some(are_codes) = are_codes(&weight)? else { continue };
            let (scales, how) = spread(&scale_name, &scale, name, weight.dims())?;
            let scales = (scales * *unit)?.broadcast_as(weight.shape())?;
            let weight = (weight.to_dtype(DType::F64)? * &scales)?;
            let factor = (scales.to_dtype(DType::F32)?, are_codes);
            self.factors.borrow_mut().insert(name.to_owned(), factor);
            let taken = Match::as_it_is(tr!("scale of {name}", name), scale_name).read(how);
            let mut matches = self.matches.borrow_mut();
            if !matches.contains(&taken) {
                matches.push(taken);
            }
            return Ok(Some(weight.to_dtype(DType::F32)?));
        }
        Ok(Some(weight))
    }
}

/// Whether these are whole numbers of a byte, or numbers that fp8 has, whose significands have three bits behind the first
/// one, and whether they are such for certain; nothing where they are not.
fn are_codes(weight: &Tensor) -> Result<Option<bool>> {
    const BEHIND: u32 = (1 << 20) - 1;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a number that f32 does not have is none of fp8"
    )]
    let is_code = |number: &f64| {
        let narrow = *number as f32;
        f64::from(narrow).to_bits() == number.to_bits() && narrow.to_bits() & BEHIND == 0
    };
    if !weight.dtype().is_float() {
        return Ok(Some(true));
    }
    let numbers = numbers(weight)?;
    let is_byte = |number: &f64| number.fract() == 0.0 && (-128.0..128.0).contains(number);
    let largest = numbers.iter().fold(0.0, |largest: f64, number| largest.max(number.abs()));
    Ok(match numbers.iter().all(is_byte) {
        true => Some(true),
        false if numbers.iter().all(is_code) => Some(LARGEST.contains(&largest)),
        false => None,
    })
}

/// Scales for each place of a matrix, or 1 for all of an axis; and that in words.
fn spread(name: &str, scale: &Tensor, weight: &str, dims: &[usize]) -> Result<(Tensor, String)> {
    let refused = || {
        let what = tr!(
            "is {own}, which is no scale of {weight}, which is {dims}",
            own = format!("{:?}", scale.dims()),
            weight,
            dims = format!("{dims:?}")
        );
        let fix = tr!("give one scale, one for each row (out) or (out, 1), or one for each block");
        Error::tensor(name, what, fix)
    };
    let shape = match (scale.dims(), dims) {
        (own, [_, _]) if own.iter().all(|length| *length == 1) => [1, 1],
        ([rows], [_, _]) => [*rows, 1],
        ([rows, columns], [_, _]) => [*rows, *columns],
        _ => return Err(refused()),
    };
    let mut spread = scale.to_dtype(DType::F64)?.reshape(&shape[..])?;
    let mut whole = shape;
    for (axis, (own, all)) in shape.into_iter().zip(dims).enumerate() {
        let block = match own {
            1 => continue,
            own if own == *all => 1,
            own if own == all.div_ceil(BLOCK) => BLOCK,
            own if own > 0 && all.is_multiple_of(own) => all / own,
            _ => return Err(refused()),
        };
        whole[axis] = own * block;
        let places = (0..*all).filter_map(|place| u32::try_from(place / block).ok());
        let places: Vec<u32> = places.collect();
        spread = spread.index_select(&Tensor::new(places, scale.device())?, axis)?;
    }
    let axes = [tr!("row"), tr!("column")];
    Ok((spread, told(&shape, &whole, &axes)))
}
