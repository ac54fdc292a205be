//! PyTorch's numbers: its generator, its normal numbers, and the order in which a run draws them.

mod draw;
mod generator;
mod normal;

pub use draw::draw;
pub use generator::Generator;
