//! Calls on threads of the caller: who runs the blocks, and what becomes of executors that do less or too much.
use sample_sys::{ffi, views, Device, Exec, Executor, Task, View};
use std::collections::HashSet;
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

/// Threads made for each call; it keeps which ones there were.
struct Scoped {
    workers: u32,
    calls: Mutex<Vec<(usize, HashSet<ThreadId>)>>,
}

impl Scoped {
    fn new(workers: u32) -> Arc<Scoped> {
        Arc::new(Scoped { workers, calls: Mutex::default() })
    }
}

impl Executor for Scoped {
    fn workers(&self) -> u32 {
        self.workers
    }

    fn run(&self, task: &Task) {
        let helped = Mutex::new(HashSet::new());
        let help = || {
            task.help();
            helped.lock().unwrap().insert(thread::current().id());
        };
        thread::scope(|scope| {
            for _ in 0..task.helpers() {
                scope.spawn(help);
            }
        });
        self.calls.lock().unwrap().push((task.helpers(), helped.into_inner().unwrap()));
    }
}

/// Does what `run` says with a task.
struct Odd {
    workers: u32,
    run: fn(&Task),
}

impl Executor for Odd {
    fn workers(&self) -> u32 {
        self.workers
    }

    fn run(&self, task: &Task) {
        (self.run)(task)
    }
}

/// Whether `add` has the sums of 64 * 1000 + 1 elements, each in a block that keeps its number in its worker's scratch.
fn adds(exec: &mut Exec) {
    const COUNT: usize = 64 * 1000 + 1;
    let a: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    let mut c = vec![0.0; COUNT];
    sample_sys::add(exec, &a, &[1.0; COUNT], &mut c, COUNT as i64).unwrap();
    assert!(c.iter().zip(&a).all(|(sum, term)| *sum == term + 1.0));
}

#[test]
fn blocks_run_on_threads_of_the_executor() {
    let executor = Scoped::new(4);
    let mut exec = Exec::on(executor.clone()).unwrap();
    for _ in 0..20 {
        adds(&mut exec);
    }
    let mut c = [0.0; 3];
    sample_sys::add(&mut exec, &[1.0; 3], &[2.0; 3], &mut c, 3).unwrap(); // one block
    assert_eq!(c, [3.0; 3]);
    let calls = executor.calls.lock().unwrap();
    let others: Vec<usize> = calls.iter().map(|(helpers, threads)| (*helpers).min(threads.len())).collect();
    assert_eq!(others, [vec![3; 20], vec![0]].concat());
    assert!(calls.iter().all(|(_, threads)| !threads.contains(&thread::current().id())));
}

#[test]
fn each_launch_of_a_kernel_is_a_task() {
    let executor = Scoped::new(2);
    let mut exec = Exec::on(executor.clone()).unwrap();
    let mut y = [0.0; 4];
    sample_sys::normalize(&mut exec, &[1.0, 3.0, 9.0, 1.0, 3.0], &mut y, 2, 2, 3).unwrap();
    assert_eq!(y, [0.25, 0.75, 0.25, 0.75]);
    assert_eq!(executor.calls.lock().unwrap().len(), 2);
}

#[test]
fn executors_may_help_too_little_or_too_often() {
    adds(&mut Exec::on(Arc::new(Odd { workers: 3, run: |_| {} })).unwrap());
    let often = |task: &Task| {
        for _ in 0..100 {
            task.help();
        }
    };
    adds(&mut Exec::on(Arc::new(Odd { workers: 3, run: often })).unwrap());
    let many = |task: &Task| {
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| task.help());
            }
        })
    };
    adds(&mut Exec::on(Arc::new(Odd { workers: 2, run: many })).unwrap());
}

#[test]
fn a_panic_goes_on_in_the_call_and_harms_no_later_one() {
    let mut exec = Exec::on(Arc::new(Odd { workers: 2, run: |_| panic!("no threads left") })).unwrap();
    let caught = catch_unwind(AssertUnwindSafe(|| adds(&mut exec))).unwrap_err();
    assert_eq!(caught.downcast_ref::<&str>(), Some(&"no threads left"));
    adds(&mut Exec::new().unwrap());
}

#[test]
fn an_executor_has_workers() {
    let none = || Arc::new(Odd { workers: 0, run: |_| {} });
    let refused = [Exec::on(none()).err(), Device::on(none()).err()].map(Option::unwrap);
    assert!(refused.iter().all(|error| error.status == ffi::TILEC_ERR_ARGUMENT));
    let executor = Scoped::new(1);
    adds(&mut Exec::on(executor.clone()).unwrap()); // on the calling thread alone
    assert!(executor.calls.lock().unwrap().is_empty());
}

#[test]
fn views_run_on_them_in_a_workspace_that_is_lent() {
    let executor = Scoped::new(3);
    let device = Device::on(executor.clone()).unwrap().with_workers(9);
    let bytes = views::normalize_workspace(&device, 2, 2, 3).unwrap();
    let mut memory = vec![0_u8; bytes + 64];
    let start = memory.as_mut_ptr().wrapping_add(memory.as_ptr().align_offset(64));
    let device = device.with_workspace(start.cast::<c_void>(), bytes).clone();
    let mut x = [1.0_f32, 3.0, 9.0, 1.0, 3.0, 9.0];
    let mut y = [0.0_f32; 4];
    let rows = View::strided(x.as_mut_ptr(), &[2, 2], &[3, 1]).unwrap();
    unsafe { views::normalize(&device, rows, View::new(y.as_mut_ptr(), &[2, 2])) }.unwrap();
    assert_eq!(y, [0.25, 0.75, 0.25, 0.75]);
    assert_eq!(device.exec().num_workers, 3);
    assert_eq!(executor.calls.lock().unwrap().len(), 2);
}
