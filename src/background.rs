//! Background tasks, none of which ends in silence.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

/// Why a background task has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskEnd {
    /// The task has completed.
    Completed,
    /// The task has panicked, with this message.
    Panicked(String),
    /// The task was dropped before its completion: it was aborted, or its runtime has ended.
    Dropped,
}

/// A task whose end is reported exactly once, however it ends.
pub(crate) struct Supervised<F, E: FnOnce(TaskEnd)> {
    /// What the task is, for logs.
    name: &'static str,
    /// `None` once the task has ended.
    task: Option<Pin<Box<F>>>,
    /// `None` once the end was reported.
    on_end: Option<E>,
}

/// Reports the end of a task, which has a name for the log. A panic is caught and logged.
///
/// The report is made where the task ends, also while its runtime shuts down, so that it must not wait.
pub(crate) fn supervise<F, E>(name: &'static str, task: F, on_end: E) -> Supervised<F, E>
where
    F: Future<Output = ()>,
    E: FnOnce(TaskEnd),
{
    Supervised { name, task: Some(Box::pin(task)), on_end: Some(on_end) }
}

impl<F, E: FnOnce(TaskEnd)> Supervised<F, E> {
    /// Drops the task, and then reports its end.
    fn end(&mut self, end: TaskEnd) {
        let task = self.task.take();
        // A destructor that panics, too, must not leave the end unreported.
        if catch_unwind(AssertUnwindSafe(|| drop(task))).is_err() {
            tracing::error!(task = self.name, "background task panicked while it was dropped");
        }
        if let Some(on_end) = self.on_end.take() {
            on_end(end);
        }
    }
}

impl<F, E> Future for Supervised<F, E>
where
    F: Future<Output = ()>,
    E: FnOnce(TaskEnd) + Unpin,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(task) = &mut this.task else { return Poll::Ready(()) };
        let end = match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => TaskEnd::Completed,
            Err(panic) => {
                let message = panic_message(&*panic);
                tracing::error!(task = this.name, reason = message, "background task panicked");
                TaskEnd::Panicked(message)
            }
        };
        this.end(end);
        Poll::Ready(())
    }
}

impl<F, E: FnOnce(TaskEnd)> Drop for Supervised<F, E> {
    fn drop(&mut self) {
        if self.on_end.is_some() {
            self.end(TaskEnd::Dropped);
        }
    }
}

/// The text of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").chars().take(MAX_MESSAGE).collect()
}

/// The characters of a panic's message that are kept.
const MAX_MESSAGE: usize = 200;

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::{Arc, Mutex},
    };

    use super::*;

    type Ends = Arc<Mutex<Vec<TaskEnd>>>;

    fn noted(ends: &Ends) -> impl FnOnce(TaskEnd) + Send + Unpin + 'static {
        let ends = ends.clone();
        move |end| ends.lock().unwrap().push(end)
    }

    /// Panics when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[tokio::test]
    async fn each_end_of_a_task_is_reported_once() {
        let ends = Ends::default();
        supervise("ready", ready(()), noted(&ends)).await;
        supervise("panics", async { panic!("as it {}", "should") }, noted(&ends)).await;
        drop(supervise("never polled", pending(), noted(&ends)));
        let aborted = tokio::spawn(supervise("aborted", pending(), noted(&ends)));
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        let bomb = Bomb;
        drop(supervise("drops", async move { drop(bomb) }, noted(&ends)));
        let expected = [
            TaskEnd::Completed,
            TaskEnd::Panicked("as it should".to_owned()),
            TaskEnd::Dropped,
            TaskEnd::Dropped,
            TaskEnd::Dropped,
        ];
        assert_eq!(*ends.lock().unwrap(), expected);
    }

    #[test]
    fn the_end_of_a_runtime_is_the_end_of_its_tasks() {
        let (ends, runtime) =
            (Ends::default(), tokio::runtime::Builder::new_current_thread().build().unwrap());
        runtime.spawn(supervise("pending", pending(), noted(&ends)));
        assert!(ends.lock().unwrap().is_empty());
        let handle = runtime.handle().clone();
        drop(runtime);
        assert_eq!(*ends.lock().unwrap(), [TaskEnd::Dropped]);
        handle.spawn(supervise("late", pending(), noted(&ends)));
        assert_eq!(*ends.lock().unwrap(), [TaskEnd::Dropped, TaskEnd::Dropped]);
    }
}
