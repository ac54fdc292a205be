//! A limit of the memory that reading an input takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// libFuzzer counts memory only under a sanitizer, so that it is counted here.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// What may be taken beside ten times the input.
const ALLOWED: usize = 200_000_000;

/// Does it with the bytes, and ends the process where this takes more memory than it may.
pub fn within_memory(bytes: &[u8], work: impl FnOnce(&[u8])) {
    LIMIT.store(HELD.load(Relaxed) + 10 * bytes.len() + ALLOWED, Relaxed);
    work(bytes);
    LIMIT.store(usize::MAX, Relaxed);
}

impl Counting {
    fn count(more: usize) {
        let held = HELD.fetch_add(more, Relaxed).saturating_add(more);
        if held > LIMIT.load(Relaxed) {
            // Saying so takes memory too.
            LIMIT.store(usize::MAX, Relaxed);
            panic_without_unwinding(more);
        }
    }
}

/// libFuzzer keeps the input of a process that aborts.
fn panic_without_unwinding(more: usize) -> ! {
    let trace = std::backtrace::Backtrace::force_capture();
    eprintln!("{more} bytes more are beyond ten times the input and 200 MB\n{trace}");
    std::process::abort()
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both are there while one is copied to the other.
        Self::count(size);
        let moved = unsafe { System.realloc(pointer, layout, size) };
        HELD.fetch_sub(if moved.is_null() { size } else { layout.size() }, Relaxed);
        moved
    }
}
