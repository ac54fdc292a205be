//! Other people's files: the names of their tensors, the layouts of their weights, the orders of their axes, the
//! configs of their models.

mod arguments;
mod axis_order;
mod beside;
mod chunks;
mod hints;
mod inputs;
mod latent;
mod layer;
mod layout;
mod matched;
mod model;
mod names;
mod packed;
mod qkv;
mod steps;

pub(crate) use arguments::{Caller, FoundMask, are_booleans, take_arguments, take_mask};
pub(crate) use axis_order::AxisOrder;
pub(crate) use hints::{heads, mask_fill};
pub use inputs::NameMap;
pub(crate) use inputs::{Inputs, find_inputs, with_batch};
pub(crate) use layout::{has_layer, layers_of, read_weights};
pub use matched::Match;
pub use model::{Known, known};
pub(crate) use names::{asked, last_segment, meanings};
pub(crate) use qkv::{Qkv, arranged, find_qkv};
pub use steps::Unmatched;
pub(crate) use steps::{FITS, Named, Orders, distance, fitting, name_steps};
