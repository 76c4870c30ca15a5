//! Metrics of the process, under the names of Prometheus' own clients. They are read from `/proc` at each scrape; without `/proc`
//! there are none.

use std::{
    fmt,
    fs::{read_dir, read_to_string},
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

/// Clock ticks per second in `/proc`, the same on every server architecture of Linux.
const TICKS: f64 = 100.0;
/// Bytes per KiB, the unit of `status`. `stat` counts in pages, whose size differs.
const KIB: f64 = 1024.0;

/// The process; its metrics are read at each scrape.
#[derive(Debug)]
pub(super) struct Process {
    /// Start of the process, in seconds since 1970.
    started: f64,
}

impl Default for Process {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: since.as_secs_f64() }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        gauge(
            &mut encoder,
            "process_start_time_seconds",
            "Start of the process, in seconds since 1970",
            Some(self.started),
        )?;
        let cpu = read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_seconds(&stat));
        if let Some(cpu) = cpu {
            let help = "CPU time of the process, in user and system mode";
            let cpu = ConstCounter::new(cpu);
            let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?;
            cpu.encode(metric)?;
        }
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        let (resident, virtually) = (bytes(&status, "VmRSS:"), bytes(&status, "VmSize:"));
        gauge(&mut encoder, "process_resident_memory_bytes", "Resident memory of the process", resident)?;
        gauge(&mut encoder, "process_virtual_memory_bytes", "Virtual memory of the process", virtually)?;
        let open = read_dir("/proc/self/fd").ok().and_then(|files| u32::try_from(files.count()).ok()).map(f64::from);
        gauge(&mut encoder, "process_open_fds", "Open files of the process", open)?;
        let limits = read_to_string("/proc/self/limits").unwrap_or_default();
        gauge(&mut encoder, "process_max_fds", "Maximum of open files of the process", most_files(&limits))
    }
}

fn gauge(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: Option<f64>) -> Result<(), fmt::Error> {
    let Some(value) = value else { return Ok(()) };
    let value = ConstGauge::new(value);
    let metric = encoder.encode_descriptor(name, help, None, value.metric_type())?;
    value.encode(metric)
}

/// Returns the sum of `utime` and `stime` of `/proc/PID/stat`, in seconds. The program's name before them is in brackets and may
/// hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: Vec<f64> = fields.take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    let [user, system] = ticks[..] else { return None };
    Some((user + system) / TICKS)
}

/// Returns a size in `/proc/PID/status`, in bytes.
fn bytes(status: &str, key: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok().map(|kib: f64| kib * KIB)
}

/// Returns the soft limit of open files in `/proc/PID/limits`.
fn most_files(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_metrics_are_parsed_from_proc_files() {
        let stat = "42 (a) b ) S 1 42 42 0 -1 4194560 5 6 7 8 150 50 1 2 20 0 9 0 100 1000 25";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("42 (a) S 1"), None);
        let status = "Name:\ta\nVmSize:\t    8192 kB\nVmRSS:\t    2048 kB\n";
        assert_eq!((bytes(status, "VmRSS:"), bytes(status, "VmSize:")), (Some(2_097_152.0), Some(8_388_608.0)));
        assert_eq!(bytes(status, "VmSwap:"), None);
        let limits =
            "Limit    Soft Limit  Hard Limit  Units\nMax open files            1024        4096        files\n";
        assert_eq!(most_files(limits), Some(1024.0));
        assert_eq!(most_files("Max open files            unlimited        unlimited        files\n"), None);
    }
}
