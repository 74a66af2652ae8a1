//! Which processors the helpers of a pool run on, where they are to be pinned. Owns the order (cores before
//! their further hardware threads) and the system calls; knows no jobs.
//!
//! `ADIT_PIN=1` asks for it: on a machine of our own it saves migrations. It is not the default, because on a
//! shared one it costs more than it ever gave here (figures in docs/kernels.md): a pinned helper cannot leave
//! a processor that another program takes. The caller is never pinned: it is the user's thread, and threads
//! that it starts later would inherit that.

/// The environment variable that asks for pinned helpers.
const VARIABLE: &str = "ADIT_PIN";

/// A processor for each helper of a pool of `threads` threads whose caller is this thread; empty where they
/// are not to be pinned: unless asked for, and where there are fewer processors than threads.
pub fn of_helpers(threads: usize) -> Vec<usize> {
    if std::env::var_os(VARIABLE).is_none_or(|value| value != "1") {
        return Vec::new();
    }
    choose(threads, system::current(), &system::allowed(), system::core)
}

/// Pins this thread. A refusal costs speed only.
pub fn pin(processor: usize) {
    system::pin(processor);
}

/// `core` names the core of a processor.
fn choose(threads: usize, caller: usize, allowed: &[usize], core: impl Fn(usize) -> usize) -> Vec<usize> {
    // The caller's processor comes first, and so stands for its core.
    let mut order = allowed.to_vec();
    order.sort_by_key(|processor| *processor != caller);
    let cores: Vec<usize> = order.iter().map(|processor| core(*processor)).collect();
    let earlier = |index: usize| cores[..index].iter().filter(|other| **other == cores[index]).count();
    let mut ranked: Vec<(usize, usize)> = (0..order.len()).map(|i| (earlier(i), order[i])).collect();
    ranked.sort_by_key(|(earlier, _)| *earlier);
    ranked.get(1..threads).unwrap_or_default().iter().map(|(_, processor)| *processor).collect()
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    pub fn current() -> usize {
        sched_getcpu()
    }

    /// Processors that this thread may run on, in ascending order.
    pub fn allowed() -> Vec<usize> {
        let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
        (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
    }

    /// The first hardware thread of a processor's core; where the system does not tell, it is its own.
    pub fn core(processor: usize) -> usize {
        let path = format!("/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
        let list = std::fs::read_to_string(path).unwrap_or_default();
        let first = list.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        first.parse().unwrap_or(processor)
    }

    pub fn pin(processor: usize) {
        let mut set = CpuSet::new();
        set.set(processor);
        let _ = sched_setaffinity(None, &set);
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub fn current() -> usize {
        0
    }

    /// None that we could pin to.
    pub fn allowed() -> Vec<usize> {
        Vec::new()
    }

    pub fn core(processor: usize) -> usize {
        processor
    }

    pub fn pin(_: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_has_a_helper_before_one_has_two() {
        // Four cores of two hardware threads: 0 and 4, 1 and 5, and so on.
        let (allowed, core): (Vec<usize>, _) = ((0..8).collect(), |processor| processor % 4);
        assert_eq!(choose(4, 0, &allowed, core), [1, 2, 3]);
        assert_eq!(choose(4, 6, &allowed, core), [0, 1, 3]);
        assert_eq!(choose(8, 6, &allowed, core), [0, 1, 3, 2, 4, 5, 7]);
    }

    #[test]
    fn a_pool_larger_than_the_machine_is_not_pinned() {
        let core = |processor| processor;
        assert_eq!(choose(4, 3, &[2, 3, 8, 9], core), [2, 8, 9]);
        assert_eq!(choose(2, 3, &[2, 3, 8, 9], core), [2]);
        assert!(choose(5, 3, &[2, 3, 8, 9], core).is_empty());
        assert!(choose(1, 0, &[0], core).is_empty());
        assert!(choose(1, 0, &[], core).is_empty());
        assert!(choose(2, 0, &[], core).is_empty());
    }

    #[test]
    fn a_thread_may_be_pinned_to_any_processor_that_it_may_use() {
        let allowed = system::allowed();
        std::thread::spawn(move || {
            for processor in allowed {
                pin(processor);
                assert_eq!(system::allowed(), [processor]);
                assert_eq!(system::current(), processor);
            }
        })
        .join()
        .expect("pinned everywhere");
    }
}
