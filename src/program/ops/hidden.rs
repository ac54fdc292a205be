//! What is a mask that follows from the settings?

use crate::axis::Dim;
use crate::terms::Reason;

/// A mask that follows from the settings.
pub(super) trait Mask {
    /// Its axes, of which the last are queries and keys.
    fn axes(&self) -> Vec<Dim>;

    /// 1 where a key is blocked, in row-major order.
    fn cells(&self) -> Vec<u8>;

    /// What it blocks, in words.
    fn formula(&self) -> String;

    /// Why a key is blocked, by its place (item, head, query, key); nothing where it is not.
    fn reason(&self, at: [usize; 4]) -> Option<Reason>;
}
