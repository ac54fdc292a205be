//! What does a trace in JSON say of a step?

use std::fmt;

use candle_core::DType;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::array::{Array, InType};
use super::record::dtype_name;

/// What a trace says of a step. Numbers behind a dtype of f32 are read as such, others as f64.
pub struct StepText {
    pub name: String,
    pub formula: Option<String>,
    pub axes: Option<Vec<String>>,
    pub dtype: Option<String>,
    pub shape: Option<Vec<usize>>,
    pub data: Array,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Name,
    Formula,
    Axes,
    Dtype,
    Shape,
    Data,
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for StepText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Step)
    }
}

struct Step;

impl<'de> Visitor<'de> for Step {
    type Value = StepText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(tr!("an object"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<StepText, A::Error> {
        let (mut name, mut formula, mut axes, mut dtype, mut shape, mut data) =
            (None, None, None, None, None, None);
        while let Some(key) = members.next_key()? {
            match key {
                Key::Name => once(&mut name, "name", members.next_value()?)?,
                Key::Formula => once(&mut formula, "formula", members.next_value()?)?,
                Key::Axes => once(&mut axes, "axes", members.next_value()?)?,
                Key::Dtype => once(&mut dtype, "dtype", members.next_value::<Option<String>>()?)?,
                Key::Shape => once(&mut shape, "shape", members.next_value()?)?,
                Key::Data => {
                    let stated = dtype.as_ref().and_then(|dtype| dtype.as_deref());
                    let is_narrow = stated == Some(dtype_name(DType::F32));
                    let array = members.next_value_seed(InType { is_narrow })?;
                    once(&mut data, "data", array)?;
                }
                Key::Other => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(StepText {
            name: name.ok_or_else(|| de::Error::missing_field("name"))?,
            formula: formula.flatten(),
            axes: axes.flatten(),
            dtype: dtype.flatten(),
            shape: shape.flatten(),
            data: data.ok_or_else(|| de::Error::missing_field("data"))?,
        })
    }
}

/// Keeps the value of a key, which may be there only once.
fn once<T, E: de::Error>(slot: &mut Option<T>, key: &'static str, value: T) -> Result<(), E> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(key)),
    }
}
