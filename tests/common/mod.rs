//! What the tests read tensors with.

#![allow(dead_code, reason = "not every test reads with all of it")]

use candle_core::{DType, Tensor};
use mha_trace::program::{Name, Step, Trace};

/// The bit patterns of all elements, row-major: −0 is not 0, and a NaN equals only itself.
pub fn bits(tensor: &Tensor) -> Vec<u64> {
    let flat = tensor.flatten_all().expect("any tensor flattens");
    match flat.dtype() {
        DType::U8 => flat.to_vec1::<u8>().expect("u8").into_iter().map(u64::from).collect(),
        DType::F32 => {
            let values = flat.to_vec1::<f32>().expect("f32");
            values.into_iter().map(|value| u64::from(value.to_bits())).collect()
        }
        DType::F64 => flat.to_vec1::<f64>().expect("f64").into_iter().map(f64::to_bits).collect(),
        other => panic!("no step is of type {other:?}"),
    }
}

/// The values of all elements, row-major. Widening is exact.
pub fn values(tensor: &Tensor) -> Vec<f64> {
    let wide = tensor.to_dtype(DType::F64).expect("every type widens");
    wide.flatten_all().and_then(|flat| flat.to_vec1()).expect("any tensor flattens")
}

/// Steps by the names that files have for them.
pub trait Named {
    /// The step of that name.
    fn named(&self, name: &str) -> Option<&Step>;
}

impl Named for Trace {
    fn named(&self, name: &str) -> Option<&Step> {
        self.step(Name::named(name)?)
    }
}

/// The place of an element in a tensor of this shape, from where it stands among all, row-major.
pub fn unravel(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (index, size) in place.iter_mut().zip(shape).rev() {
        (*index, at) = (at % size, at / size);
    }
    place
}
