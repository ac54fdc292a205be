//! How does a nested JSON array become a tensor?

use std::fmt;

use candle_core::{DType, Device, Tensor};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, SeqAccess, Visitor};

use super::bare_words::{INFINITY, NAN, NEGATIVE_INFINITY};
use super::record::dtype_name;

/// What the elements of an array are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Integer,
    Float,
}

/// Whole numbers below this are read to the last digit.
const WHOLE: f64 = 9_007_199_254_740_992.0;
/// The least numbers that round to infinity: halfway from the largest number to the next power of two.
const F16_INFINITE: f64 = 65520.0;
const BF16_INFINITE: f64 = 3.396_177_529_230_495_7e38;

/// A nested array, row-major.
#[derive(Debug)]
pub struct Array {
    pub kind: Kind,
    pub shape: Vec<usize>,
    values: Values,
}

/// The numbers of an array as they are kept.
#[derive(Debug)]
enum Values {
    Wide(Vec<f64>),
    /// Those of f32, and the first one that is beyond its range.
    Narrow(Vec<f32>, Option<f64>),
}

impl Array {
    /// Whether the elements can be of the type that they are said to be.
    pub fn fits(&self, dtype: DType) -> Result<(), String> {
        let below = |bound: f64, value: &f64| !value.is_finite() || value.abs() < bound;
        let fits = |value: &f64| match dtype {
            DType::U8 => [0.0, 1.0].contains(value),
            DType::I64 => value.fract() == 0.0 && value.abs() < WHOLE,
            DType::F16 => below(F16_INFINITE, value),
            DType::BF16 => below(BF16_INFINITE, value),
            DType::F32 => !value.is_finite() || narrow(*value).is_finite(),
            DType::F64 => true,
            // No file is said to be of another; candle may add some.
            _ => false,
        };
        let misfit = match &self.values {
            Values::Wide(values) => values.iter().find(|value| !fits(value)),
            Values::Narrow(_, beyond) => beyond.as_ref(),
        };
        match misfit {
            Some(value) if dtype == DType::U8 => Err(tr!("{value} is not a boolean", value)),
            Some(value) if dtype == DType::I64 && value.fract() != 0.0 => {
                Err(tr!("{value} is not a whole number", value))
            }
            Some(value) => Err(tr!(
                "{value} does not fit {dtype}",
                value = format!("{value:e}"),
                dtype = dtype_name(dtype)
            )),
            None => Ok(()),
        }
    }

    /// The array as a tensor of the given type. Without a type, integers beyond 2⁵³ are rounded.
    pub fn into_tensor(self, dtype: DType) -> candle_core::Result<Tensor> {
        let shape = self.shape.as_slice();
        let values = match self.values {
            Values::Wide(values) => values,
            Values::Narrow(values, _) => {
                return Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(dtype);
            }
        };
        match dtype {
            DType::U8 => {
                let bits: Vec<u8> = values.iter().map(|value| u8::from(*value != 0.0)).collect();
                Tensor::from_vec(bits, shape, &Device::Cpu)
            }
            DType::F32 => {
                let narrow: Vec<f32> = values.iter().copied().map(narrow).collect();
                Tensor::from_vec(narrow, shape, &Device::Cpu)
            }
            other => Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(other),
        }
    }
}

/// The f32 whose shortest decimal was read as `value`.
///
/// Rounding alone finds it but for a decimal so close to the middle of two f32 that the nearest f64 is that middle:
/// of all 2³² f32, ±7.038531e-26 have such a one.
#[allow(clippy::cast_possible_truncation, reason = "rounds")]
fn narrow(value: f64) -> f32 {
    /// The bits of an f64 that an f32 has no place for, and those of them that make a middle.
    const LOST: u64 = (1 << 29) - 1;
    const MIDDLE: u64 = 1 << 28;
    let rounded = value as f32;
    if value.to_bits() & LOST != MIDDLE {
        return rounded;
    }
    let other = if value > f64::from(rounded) { rounded.next_up() } else { rounded.next_down() };
    if other.to_string().parse() == Ok(value) { other } else { rounded }
}

impl<'de> Deserialize<'de> for Array {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        InType { is_narrow: false }.deserialize(deserializer)
    }
}

/// Reads an array of numbers that are said to be of f32, or of any.
pub struct InType {
    pub is_narrow: bool,
}

impl<'de> DeserializeSeed<'de> for InType {
    type Value = Array;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Array, D::Error> {
        let mut builder = Builder::new(self.is_narrow);
        Nested { builder: &mut builder, depth: 0 }.deserialize(deserializer)?;
        let shape: Vec<usize> = builder.shape.into_iter().flatten().collect();
        match builder.kind {
            Some(kind) => Ok(Array { kind, shape, values: builder.values }),
            None => Err(de::Error::custom(tr!("the array is empty"))),
        }
    }
}

struct Builder {
    kind: Option<Kind>,
    /// The length at each depth, once a row of it has ended.
    shape: Vec<Option<usize>>,
    /// The depth of the numbers.
    leaves: Option<usize>,
    values: Values,
}

impl Builder {
    fn new(is_narrow: bool) -> Self {
        let values =
            if is_narrow { Values::Narrow(Vec::new(), None) } else { Values::Wide(Vec::new()) };
        Self { kind: None, shape: Vec::new(), leaves: None, values }
    }

    fn push<E: de::Error>(&mut self, depth: usize, value: f64, kind: Kind) -> Result<(), E> {
        if *self.leaves.get_or_insert(depth) != depth || self.shape.len() > depth {
            return Err(E::custom(tr!("ragged: a number where another row has a row")));
        }
        self.kind = Some(match (self.kind, kind) {
            (None, kind) => kind,
            (Some(Kind::Bool), Kind::Bool) => Kind::Bool,
            (Some(Kind::Bool), _) | (Some(_), Kind::Bool) => {
                return Err(E::custom(tr!("numbers and booleans in one array")));
            }
            (Some(Kind::Integer), Kind::Integer) => Kind::Integer,
            _ => Kind::Float,
        });
        match &mut self.values {
            Values::Wide(values) => values.push(value),
            Values::Narrow(values, beyond) => {
                let narrow = narrow(value);
                if narrow.is_infinite() && value.is_finite() {
                    beyond.get_or_insert(value);
                }
                values.push(narrow);
            }
        }
        Ok(())
    }

    fn end_row<E: de::Error>(&mut self, depth: usize, length: usize) -> Result<(), E> {
        let Some(slot) = self.shape.get_mut(depth) else { return Ok(()) };
        match slot.replace(length) {
            Some(first) if first != length => Err(E::custom(tr!(
                "ragged: a row of {length} where the first has {first}",
                length,
                first
            ))),
            _ => Ok(()),
        }
    }
}

struct Nested<'a> {
    builder: &'a mut Builder,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Nested<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nested<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(tr!("a nested array of numbers"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        let Self { builder, depth } = self;
        if builder.leaves.is_some_and(|leaves| leaves <= depth) {
            return Err(de::Error::custom(tr!("ragged: a row where another row has a number")));
        }
        if builder.shape.len() <= depth {
            builder.shape.push(None);
        }
        let mut length = 0;
        while rows.next_element_seed(Nested { builder, depth: depth + 1 })?.is_some() {
            length += 1;
        }
        builder.end_row(depth, length)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.builder.push(self.depth, f64::from(u8::from(value)), Kind::Bool)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.builder.push(self.depth, value as f64, Kind::Integer)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.builder.push(self.depth, value as f64, Kind::Integer)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.builder.push(self.depth, value, Kind::Float)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        let value = match text {
            "NaN" | NAN => f64::NAN,
            "Infinity" | INFINITY => f64::INFINITY,
            "-Infinity" | NEGATIVE_INFINITY => f64::NEG_INFINITY,
            other => return Err(E::custom(tr!("\"{other}\" is not a number", other))),
        };
        self.builder.push(self.depth, value, Kind::Float)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Array, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn shape_and_kind_are_found() {
        let array = read("[[1, 0, 1], [0, 0, 1]]").expect("reads");
        assert_eq!((array.kind, array.shape), (Kind::Integer, vec![2, 3]));
        assert_eq!(read("[[true], [false]]").expect("reads").kind, Kind::Bool);
        assert_eq!(read("[0, \"-Infinity\"]").expect("reads").kind, Kind::Float);
    }

    #[test]
    fn integers_below_zero_are_integers_too() {
        let array = read("[[-1, 2], [3, -4]]").expect("reads");
        assert_eq!((array.kind, &array.shape), (Kind::Integer, &vec![2, 2]));
        let tensor = array.into_tensor(DType::I64).expect("converts");
        assert_eq!(tensor.to_vec2::<i64>().expect("a matrix"), [[-1, 2], [3, -4]]);
    }

    #[test]
    fn ragged_arrays_are_refused_with_their_place() {
        for (text, reason) in [
            ("[[1, 0],\n [1]]", "ragged: a row of 1 where the first has 2 at line 2 column 4"),
            ("[[1, 0], 1]", "ragged: a number where another row has a row at line 1 column 10"),
            ("[1, [0]]", "ragged: a row where another row has a number at line 1 column 5"),
            ("[[], []]", "the array is empty"),
            ("[[1], [true]]", "numbers and booleans in one array at line 1 column 11"),
            ("[\"one\"]", "\"one\" is not a number at line 1 column 6"),
        ] {
            assert_eq!(read(text).expect_err("refused"), reason);
        }
    }

    #[test]
    fn a_type_refuses_what_it_cannot_hold() {
        for (text, dtype, said) in [
            ("[1, 1.5]", DType::I64, "1.5 is not a whole number"),
            ("[\"NaN\"]", DType::I64, "NaN is not a whole number"),
            ("[1e16]", DType::I64, "1e16 does not fit i64"),
            ("[65519, 65520]", DType::F16, "6.552e4 does not fit f16"),
            ("[3.4e38]", DType::BF16, "3.4e38 does not fit bf16"),
            ("[-3.5e38]", DType::F32, "-3.5e38 does not fit f32"),
            ("[2]", DType::U8, "2 is not a boolean"),
        ] {
            assert_eq!(read(text).expect("reads").fits(dtype), Err(said.to_owned()));
        }
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let array = read("[65519, \"NaN\", \"-Infinity\"]").expect("reads");
            assert_eq!(array.fits(dtype), Ok(()));
            let values = array.into_tensor(dtype).and_then(|tensor| tensor.to_dtype(DType::F64));
            let values = values.and_then(|tensor| tensor.to_vec1::<f64>()).expect("a vector");
            assert!(values[0].is_finite(), "{dtype:?}");
        }
    }

    /// Numbers that are read as f32 are those that are read as f64 and rounded once.
    #[test]
    fn numbers_said_to_be_f32_are_the_same() {
        let read_as = |is_narrow: bool, text: &str| {
            let mut text = serde_json::Deserializer::from_str(text);
            InType { is_narrow }.deserialize(&mut text).expect("reads")
        };
        let text = "[[0.1, 7.038531e-26, 1], [\"NaN\", -2e-46, \"-Infinity\"]]";
        let [narrow, wide] = [true, false].map(|is_narrow| {
            let array = read_as(is_narrow, text);
            assert_eq!((array.fits(DType::F32), array.kind), (Ok(()), Kind::Float));
            let tensor = array.into_tensor(DType::F32).and_then(|tensor| tensor.to_vec2::<f32>());
            tensor.expect("a matrix").concat().into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        assert_eq!(narrow, wide);
        let misfits =
            [true, false].map(|is_narrow| read_as(is_narrow, "[1, -1e39, 2e39]").fits(DType::F32));
        assert_eq!(
            misfits,
            [Err("-1e39 does not fit f32".to_owned()), Err("-1e39 does not fit f32".to_owned())]
        );
    }

    #[test]
    fn the_one_f32_that_rounding_twice_would_lose_is_kept() {
        for bits in [0x15ae_43fd, 0x15ae_43fe, 0x15ae_43fc, 0x95ae_43fd] {
            let text = f32::from_bits(bits).to_string();
            let tensor = read(&format!("[{text}]")).expect("reads").into_tensor(DType::F32);
            let values = tensor.and_then(|tensor| tensor.to_vec1::<f32>()).expect("a vector");
            assert_eq!(values[0].to_bits(), bits, "{text}");
        }
    }

    #[test]
    fn an_integer_array_is_a_boolean_tensor_when_asked() {
        let tensor = read("[0, 2, 1]").expect("reads").into_tensor(DType::U8).expect("converts");
        assert_eq!(tensor.to_vec1::<u8>().expect("a vector"), [0, 1, 1]);
    }
}
