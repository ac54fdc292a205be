//! The one place with unsafe code: what no safe function of a crate does for rows of f32.
#![allow(
    unsafe_code,
    reason = "gemm and madvise take pointers; slices say that these are right. The environment is set before there are threads"
)]

use gemm::{Parallelism, gemm};

/// left · right or left · rightᵀ, written where it belongs by the thread that has the rows at hand: candle multiplies whole
/// tensors on all cores, with the same crate. Left is (rows, inner), the result (rows, columns). A sum of zeros is +0 as in
/// PyTorch: gemm leaves −0 where it begins with a product and not with 0, for one or two products and for single rows or
/// columns.
///
/// # Panics
/// If a slice has another length than its matrix.
pub(super) fn multiply_blocks(
    left: &[f32],
    right: &[f32],
    is_transposed: bool,
    [rows, inner, columns]: [usize; 3],
    result: &mut [f32],
) {
    assert_eq!(Some(left.len()), rows.checked_mul(inner), "left");
    assert_eq!(Some(right.len()), inner.checked_mul(columns), "right");
    assert_eq!(Some(result.len()), rows.checked_mul(columns), "result");
    // Slices have fewer bytes than an isize can count.
    let [to_inner, to_columns] = [inner, columns].map(usize::cast_signed);
    let (right_column, right_row) = if is_transposed { (to_inner, 1) } else { (1, to_columns) };
    // SAFETY: the three slices are as long as their matrices, and the strides stay within these; the result is borrowed
    // mutably, so that it overlaps with neither factor. f32 is one of gemm's types.
    unsafe {
        gemm(
            rows,
            columns,
            inner,
            result.as_mut_ptr(),
            1,
            to_columns,
            false,
            left.as_ptr(),
            1,
            to_inner,
            right.as_ptr(),
            right_column,
            right_row,
            0.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
    if inner <= 2 || rows == 1 || columns == 1 {
        for number in result {
            *number += 0.0;
        }
    }
}

/// States that candle's products are shared among so many threads, where nothing says how many. It asks at every product, and reads
/// /proc/cpuinfo for that: a third of the time that a search for mistakes takes in small files. Nothing where other threads
/// could read the environment at the same time.
pub fn state_threads(count: usize) {
    const COUNT: &str = "RAYON_NUM_THREADS";
    let is_alone = || Some(std::fs::read_dir("/proc/self/task").ok()?.count() == 1);
    if std::env::var_os(COUNT).is_none() && is_alone().unwrap_or(false) {
        // SAFETY: this thread is the only one.
        unsafe { std::env::set_var(COUNT, count.to_string()) };
    }
}

/// Has memory that is about to be written for the first time ready on all cores: in huge pages, which take a fifth of the
/// time of small ones where the system has them at hand, or else in many small ones at once. Virtual machines that give free
/// memory back to their host can take as long for a huge page as for hundreds of small ones; after the first such page no
/// more are asked for.
#[cfg(target_os = "linux")]
pub fn make_ready(numbers: &mut [f32]) {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use rayon::prelude::*;
    use rustix::mm::{Advice, madvise};

    /// A huge page on most processors.
    const BYTES: usize = 2 << 20;
    /// A page that is cleared by this machine takes a quarter of this at most; one that its host must find first, four times.
    const SLOW: Duration = Duration::from_millis(1);
    static ARE_SLOW: AtomicBool = AtomicBool::new(false);

    // Most values are smaller, and need no other thread to have begun.
    if size_of_val(numbers) < BYTES {
        return;
    }
    let before = numbers.as_ptr().align_offset(BYTES);
    let inside = numbers.get_mut(before..).unwrap_or_default();
    inside.par_chunks_exact_mut(BYTES / size_of::<f32>()).for_each(|page| {
        let mut advise = |advice| {
            // SAFETY: the page is borrowed mutably as a whole, and neither advice changes its numbers.
            unsafe { madvise(page.as_mut_ptr().cast(), BYTES, advice) }
        };
        let started = Instant::now();
        let are_slow = ARE_SLOW.load(Ordering::Relaxed);
        let is_huge = !are_slow && advise(Advice::LinuxHugepage).is_ok();
        // Systems before Linux 5.14 do not know this: there the pages come one by one, when they are written.
        let _ = advise(Advice::LinuxPopulateWrite);
        if is_huge && started.elapsed() > SLOW {
            ARE_SLOW.store(true, Ordering::Relaxed);
        }
    });
}

/// Other systems choose the size of pages by themselves.
#[cfg(not(target_os = "linux"))]
pub fn make_ready(_: &mut [f32]) {}
