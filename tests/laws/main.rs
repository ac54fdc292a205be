//! What must be true of every run, whatever its sizes, masks and types.

mod attention;
#[path = "../common/mod.rs"]
mod common;
mod core;
mod files;
mod gradients;
mod modern;
mod order;
mod reading;
mod rows;
mod settings;
mod slow;
mod strategy;
mod terms;
