//! Backup and restore of control planes.

use anyhow::Result;

use super::Testbed;
use crate::backup::{Backup, Snapshot};

impl Testbed {
    /// Backs up the project's control plane.
    pub async fn back_up_project(&self) -> Result<Backup> {
        Backup::take(self.etcd_of_project.as_ref().unwrap_or(&self.etcd), self.project.name()).await
    }

    /// Stops the project's API server, restores a backup, and starts the server again.
    pub async fn restore_project(&mut self, backup: &Backup) -> Result<()> {
        self.project.stop_api_server();
        backup.restore(self.etcd_of_project.as_ref().unwrap_or(&self.etcd)).await?;
        self.project.start_api_server()?;
        self.project.wait_ready().await
    }

    /// Backs up the hub.
    pub async fn back_up_hub(&self) -> Result<Backup> {
        Backup::take(&self.etcd, self.hub.name()).await
    }

    /// Stops the hub's API server, restores a backup, and starts the server again.
    pub async fn restore_hub(&mut self, backup: &Backup) -> Result<()> {
        self.hub.stop_api_server();
        backup.restore(&self.etcd).await?;
        self.hub.start_api_server()?;
        self.hub.wait_ready().await
    }

    /// Returns a snapshot of etcd with its revisions.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::take(&self.etcd, &self.dir)
    }

    /// Restarts the project's API server on its own etcd with the data of the snapshot. The versions of its objects go back.
    pub async fn rewind_project(&mut self, to: &Snapshot) -> Result<()> {
        self.project.stop_api_server();
        let etcd = to.serve(self.project.bin())?;
        self.project.move_to(&etcd);
        self.project.start_api_server()?;
        self.project.wait_ready().await?;
        self.etcd_of_project = Some(etcd);
        Ok(())
    }
}
