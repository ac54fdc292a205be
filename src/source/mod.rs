//! Where the numbers come from: PyTorch's generator, files, and the masks that a config describes.

mod alias;
mod draw;
mod frequencies;
mod generator;
mod given;
mod layer;
mod layout;
mod mask;
mod model;
mod normal;
mod role;
mod sizes;
mod sources;
mod taken;

pub use alias::{last_segment, meanings};
pub use draw::draw;
pub use frequencies::frequencies;
pub use generator::{Generator, dropout_scale};
pub use given::{NameMap, adopt_given};
pub use mask::{MaskShapes, Masks, alibi, alibi_slopes, before_window, causal, unravel};
pub use role::Role;
pub use sources::{Sources, key_mask_rows, split_place};
pub use taken::Taken;
