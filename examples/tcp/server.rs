//! A server of the line protocol: it answers each line with its name and the line.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// A server that can be stopped and started again at the same address.
pub(crate) struct LineServer {
    name: &'static str,
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl LineServer {
    pub(crate) async fn start(name: &'static str) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { name, address, task: tokio::spawn(serve(name, listener)) })
    }

    /// Closes the listener and all connections, whatever is under way.
    pub(crate) async fn stop(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    pub(crate) async fn restart(&mut self) -> io::Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        self.task = tokio::spawn(serve(self.name, listener));
        Ok(())
    }
}

async fn serve(name: &'static str, listener: TcpListener) {
    // Dropped with the task, which ends those of the connections.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(answer(name, stream));
    }
}

async fn answer(name: &str, stream: TcpStream) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Some(line) = lines.next_line().await? {
        write.write_all(format!("{name}: {line}\n").as_bytes()).await?;
    }
    Ok(())
}
