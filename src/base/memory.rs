//! What the machine can still hold.

/// Below this no machine is in doubt, and asking it costs more than the work.
const UNDOUBTED: u128 = 16 << 20;

/// The bytes that this process can still take, if these are fewer than it needs.
pub fn lacking(needed: u128) -> Option<u64> {
    if needed < UNDOUBTED {
        return None;
    }
    let available = available();
    (needed > u128::from(available)).then_some(available)
}

/// Bytes that a process can still take: of the machine, of its control group or of its own limits, whichever is least. A
/// machine that does not tell refuses nothing.
fn available() -> u64 {
    let own = allowed().unwrap_or(u64::MAX);
    let Ok(mut system) = sysinfo::System::new() else { return own };
    system.refresh_memory();
    let group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    system.available_memory().min(group).min(own)
}

/// What the limits of the process leave, as Linux tells it.
fn allowed() -> Option<u64> {
    let read = |name| std::fs::read_to_string(format!("/proc/self/{name}")).ok();
    left(&read("limits")?, &read("status")?)
}

/// The same, from the two texts.
fn left(limits: &str, status: &str) -> Option<u64> {
    // The number behind a name at the start of a line.
    let number = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let pairs = [("Max address space", "VmSize:"), ("Max data size", "VmData:")];
    let left = pairs.iter().filter_map(|(limit, used)| {
        let used = number(status, used)?.saturating_mul(1024);
        Some(number(limits, limit)?.saturating_sub(used))
    });
    // Between what is allocated some stays free.
    left.min().map(|left| left / 3 * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_counts() {
        let limits = |data: &str, space: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max data size             {data}            unlimited            bytes     \n\
                 Max address space         {space}            unlimited            bytes     \n"
            )
        };
        let status = "VmPeak:\t    9000 kB\nVmSize:\t    1000 kB\nVmData:\t     500 kB\n";
        assert_eq!(left(&limits("unlimited", "unlimited"), status), None);
        assert_eq!(left(&limits("unlimited", "2048000"), status), Some(682_666));
        assert_eq!(left(&limits("612000", "2048000"), status), Some(66_666));
        assert_eq!(left(&limits("unlimited", "1000"), status), Some(0));
        assert_eq!(left("", ""), None);
    }

    #[test]
    fn little_is_not_asked_for_and_no_machine_holds_everything() {
        assert_eq!(lacking(1 << 20), None);
        assert!(lacking(u128::MAX).is_some());
    }
}
