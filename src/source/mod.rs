//! Where the numbers come from: PyTorch's generator, files, and the masks that a config describes.

mod draw;
mod generator;
mod layout;
mod mask;
mod normal;
mod role;
mod sources;

pub use draw::draw;
pub use generator::{Generator, dropout_scale};
pub use mask::{MaskShapes, Masks, unravel};
pub use role::Role;
pub use sources::{Sources, key_mask_rows};
