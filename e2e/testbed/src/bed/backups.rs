//! What control planes held before, kept and given back.

use anyhow::Result;

use super::Testbed;
use crate::backup::{Backup, Snapshot};

impl Testbed {
    /// A backup of the project's control plane.
    pub async fn back_up_project(&self) -> Result<Backup> {
        Backup::take(self.etcd_of_project.as_ref().unwrap_or(&self.etcd), self.project.name()).await
    }

    /// Stops the project's API server, puts a backup in the place of what it had, and starts it again.
    pub async fn restore_project(&mut self, backup: &Backup) -> Result<()> {
        self.project.stop_api_server();
        backup.restore(self.etcd_of_project.as_ref().unwrap_or(&self.etcd)).await?;
        self.project.start_api_server()?;
        self.project.wait_ready().await
    }

    /// A backup of the hub.
    pub async fn back_up_hub(&self) -> Result<Backup> {
        Backup::take(&self.etcd, self.hub.name()).await
    }

    /// Stops the hub's API server, puts a backup in the place of what it had, and starts it again.
    pub async fn restore_hub(&mut self, backup: &Backup) -> Result<()> {
        self.hub.stop_api_server();
        backup.restore(&self.etcd).await?;
        self.hub.start_api_server()?;
        self.hub.wait_ready().await
    }

    /// What etcd holds now, with its revisions.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::take(&self.etcd, &self.dir)
    }

    /// Stops the project's API server and starts it on an etcd of its own, which is as it was when the snapshot was taken: what it
    /// serves has older versions than it had since.
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
