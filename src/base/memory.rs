//! How much memory this process can still take, and what it is limited by.

/// Below this no machine is in doubt, and asking it costs more than the work.
const UNDOUBTED: u128 = 16 << 20;

/// What limits the memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// What the machine has.
    Machine,
    /// What the control group of the process is allowed.
    Group,
    /// What the process is allowed, as by `ulimit -v`.
    Process,
}

/// What a process can still take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// So many bytes.
    pub bytes: u64,
    /// By this limit.
    pub limit: Limit,
}

/// The bytes that this process can still take, if these are fewer than it needs.
pub fn lacking(needed: u128) -> Option<u64> {
    short_of(needed).map(|left| left.bytes)
}

/// What this process can still take, if that is less than it needs.
pub fn short_of(needed: u128) -> Option<Left> {
    if needed < UNDOUBTED {
        return None;
    }
    Some(left()).filter(|left| needed > u128::from(left.bytes))
}

/// What this process can still take, by the lowest limit. A machine that does not tell refuses nothing.
fn left() -> Left {
    let of_process = allowed().map(|bytes| Left { bytes, limit: Limit::Process });
    let system = sysinfo::System::new().ok().map(|mut system| {
        system.refresh_memory();
        let group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
        [(system.available_memory(), Limit::Machine), (group, Limit::Group)]
    });
    let of_system = system.into_iter().flatten().map(|(bytes, limit)| Left { bytes, limit });
    let lowest = of_system.chain(of_process).min_by_key(|left| (left.bytes, left.limit));
    lowest.unwrap_or(Left { bytes: u64::MAX, limit: Limit::Machine })
}

/// What the limits of the process leave, as Linux tells it.
fn allowed() -> Option<u64> {
    let read = |name| std::fs::read_to_string(format!("/proc/self/{name}")).ok();
    left_by(&read("limits")?, &read("status")?)
}

/// The same, from the two texts.
fn left_by(limits: &str, status: &str) -> Option<u64> {
    // The number behind a name at the start of a line.
    let number = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let kilobytes = |name| Some(number(status, name)?.saturating_mul(1024));
    // The allocator has taken room ahead of what is asked for, which is still free.
    let ahead = kilobytes("VmData:")?.saturating_sub(kilobytes("RssAnon:")?);
    let pairs = [("Max address space", "VmSize:"), ("Max data size", "VmData:")];
    let left = pairs.iter().filter_map(|(limit, used)| {
        Some(number(limits, limit)?.saturating_sub(kilobytes(used)?).saturating_add(ahead))
    });
    // Large values stand at multiples of 32 MiB, with as much unused between them.
    left.min().map(|left| left / 5 * 2)
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
        let status = "VmPeak:\t    9000 kB\nVmSize:\t    1000 kB\nVmData:\t     500 kB\nRssAnon:\t     500 kB\n";
        assert_eq!(left_by(&limits("unlimited", "unlimited"), status), None);
        assert_eq!(left_by(&limits("unlimited", "2048000"), status), Some(409_600));
        assert_eq!(left_by(&limits("612000", "2048000"), status), Some(40_000));
        assert_eq!(left_by(&limits("unlimited", "1000"), status), Some(0));
        assert_eq!(left_by("", ""), None);
        // What the allocator has taken ahead can still be used.
        let ahead = status.replace("RssAnon:\t     500", "RssAnon:\t     100");
        assert_eq!(left_by(&limits("unlimited", "1000"), &ahead), Some(163_840));
    }

    #[test]
    fn little_is_not_asked_for_and_no_machine_holds_everything() {
        assert_eq!(lacking(1 << 20), None);
        assert!(lacking(u128::MAX).is_some());
    }
}
