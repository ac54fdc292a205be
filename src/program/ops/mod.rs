//! The operations, a family a file.

mod bias;
mod dropout;
mod frequencies;
mod heads;
mod linear;
mod mask;
mod norm;
mod rearrange;
mod rotary;
mod scores;
mod softmax;

pub use bias::{AddMask, Alibi, AlibiSlopes, SumBiases, alibi_slopes};
pub use dropout::{Dropout, DropoutScale, KeepSome};
pub use frequencies::{Frequencies, Llama3, RopeScaling, Yarn};
pub use heads::{Append, MergeHeads, RepeatHeads, SplitHeads, SumHeads};
pub use linear::{Project, QueryRows};
pub use mask::{AnyOf, Blocked, BlockedKeys, Causal, Fill, Hidden, MaskFill, Not, Window};
pub use norm::RmsNorm;
pub use rearrange::{HandOn, Rearrange};
pub use rotary::{Pairing, Rotate};
pub use scores::{DotProduct, Scale, ScaleBy, SoftCap, WeightedSum};
pub use softmax::{EmptyRow, Softmax, ZeroEmptyRows};
