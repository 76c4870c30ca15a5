//! A federation as plain local processes on 127.0.0.1, without containers and without root. It has etcd, and an API server and a
//! controller manager for a project, a hub and each cell. Karmada is real or a stand-in. Further stand-ins replace the provider
//! of Instances, network services, quota and Milo. The testbed serves the tests, the demo and the benchmarks, and works with
//! kubectl.

pub mod admission;
pub mod audit;
pub mod backup;
pub mod bed;
pub mod binaries;
pub mod chainsaw;
pub mod chart;
pub mod control_plane;
pub mod dashboard;
pub mod definitions;
pub mod demo;
pub mod door;
mod download;
pub mod gate;
mod go_build;
pub mod go_era;
pub mod go_program;
mod install;
pub mod karmada;
pub mod kstatus;
mod managers;
pub mod manifests;
mod meter;
pub mod neighbours;
pub mod operator;
pub mod picture;
pub mod pki;
mod prepared;
pub mod process;
pub mod provider;
mod proxy;
pub mod schemas;
pub mod status;
pub mod supply;

pub use bed::{Options, Testbed, eventually};
