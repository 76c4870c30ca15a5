//! Ends managers and starts them again for a script, `e2e/manager`: it connects to a port, says `stop NAME` or `start NAME` in one
//! line, and is answered in one.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::operator::Operator;

/// How long a manager may take to end; what Kubernetes gives a pod.
const GRACE: Duration = Duration::from_secs(30);

/// Where it is asked.
#[derive(Debug)]
pub(crate) struct Managers {
    listener: TcpListener,
}

impl Managers {
    /// Takes a free port.
    pub(crate) async fn listen() -> Result<Self> {
        Ok(Self { listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await? })
    }

    /// The port.
    pub(crate) fn port(&self) -> Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Does what it is asked, one thing after the other, for as long as it is waited for.
    pub(crate) async fn serve(&self, operators: &mut [Operator]) -> Result<()> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            // Whoever asks and is gone before the answer has asked all the same.
            let _ = answer(stream, operators).await;
        }
    }
}

async fn answer(stream: TcpStream, operators: &mut [Operator]) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let said = match carry_out(line.trim(), operators).await {
        Ok(()) => "done\n".to_owned(),
        Err(why) => format!("{}\n", format!("{why:#}").replace('\n', " ")),
    };
    stream.write_all(said.as_bytes()).await?;
    Ok(())
}

async fn carry_out(asked: &str, operators: &mut [Operator]) -> Result<()> {
    let (verb, who) = asked.split_once(' ').context("stop or start, and whom?")?;
    let name = format!("operator-{who}");
    let operator = operators.iter_mut().find(|operator| operator.process.name() == name);
    let operator = operator.with_context(|| format!("there is no manager of {who}"))?;
    match verb {
        "stop" => match operator.process.stop(GRACE).await {
            0 => Ok(()),
            code => bail!("{name} ended with {code}: {}", operator.process.tail()),
        },
        // It may be asked for to be sure that it runs.
        "start" if operator.process.exit_code().is_none() => Ok(()),
        "start" => operator.start_again().await,
        other => bail!("{other}? stop or start"),
    }
}
