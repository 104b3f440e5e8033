//! The safe functions of the sample library, and what they refuse.
use sample_sys::{ffi, select, Device, Error, Exec};

fn fails<T: std::fmt::Debug>(result: Result<T, Error>, status: i32, says: &str) {
    let error = result.expect_err(says);
    assert_eq!(error.status, status, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn add_writes_the_sums() {
    let a: Vec<f32> = (0..100).map(|i| i as f32).collect();
    for mut exec in [Exec::new(), Exec::serial(), Exec::workers(1)].map(Result::unwrap) {
        let mut c = [0.0; 100];
        sample_sys::add(&mut exec, &a, &[1.0; 100], &mut c, 100).unwrap();
        assert!(c.iter().zip(&a).all(|(sum, term)| *sum == term + 1.0));
        sample_sys::add(&mut exec, &[], &[], &mut [], 0).unwrap();
    }
}

#[test]
fn short_slices_and_bad_dims_run_nothing() {
    let mut exec = Exec::new().unwrap();
    let (a, mut c) = ([1.0; 4], [7.0; 4]);
    let short = sample_sys::add(&mut exec, &a, &a[..3], &mut c, 4);
    fails(short, ffi::TILEC_ERR_SHAPE, "b: the slice holds 3 elements, the dims ask for 4");
    fails(sample_sys::add(&mut exec, &a, &a, &mut c, -1), ffi::TILEC_ERR_SHAPE, "negative");
    let huge = i64::MAX / 2;
    fails(sample_sys::matmul(&mut exec, &a, &a, &mut c, 1.0, huge, 16, 8), ffi::TILEC_ERR_SHAPE, "too large");
    assert_eq!(c, [7.0; 4]);
}

#[test]
fn errors_of_the_library_carry_its_words() {
    let mut exec = Exec::new().unwrap();
    let result = sample_sys::matmul(&mut exec, &[1.0; 40], &[1.0; 120], &mut [0.0; 75], 1.0, 5, 15, 8);
    fails(result, ffi::TILEC_ERR_NO_VARIANT, "N = 15");
}

#[test]
fn matmul_takes_a_scalar() {
    let mut exec = Exec::new().unwrap();
    let mut c = [0.0; 5 * 16];
    sample_sys::matmul(&mut exec, &[2.0; 5 * 8], &[3.0; 8 * 16], &mut c, 0.5, 5, 16, 8).unwrap();
    assert_eq!(c, [24.0; 5 * 16]);
}

#[test]
fn strided_rows_use_a_workspace_that_grows() {
    let mut exec = Exec::new().unwrap();
    for rows in [2, 17, 100, 2] {
        let mut x = vec![9.0; rows * 4 - 2]; // the last row ends with its last element
        for row in x.chunks_mut(4) {
            row[..2].copy_from_slice(&[1.0, 3.0]);
        }
        let mut y = vec![0.0; rows * 2];
        sample_sys::normalize(&mut exec, &x, &mut y, rows as i64, 2, 4).unwrap();
        assert!(y.chunks(2).all(|row| row == [0.25, 0.75]));
    }
    let short = sample_sys::normalize(&mut exec, &[1.0; 5], &mut [0.0; 4], 2, 2, 4);
    fails(short, ffi::TILEC_ERR_SHAPE, "x: the slice holds 5 elements, the dims ask for 6");
}

#[test]
fn scalars_of_every_kind() {
    let mut exec = Exec::new().unwrap();
    let mut y = [0; 4];
    sample_sys::mixed(&mut exec, &[3, -4], &mut y, 4, true, 10, 2.0).unwrap();
    assert_eq!(y, [26, 26, 12, 12]);
    fails(sample_sys::mixed(&mut exec, &[3], &mut y, 4, true, 10, 2.0), ffi::TILEC_ERR_SHAPE, "ask for 2");
}

#[test]
fn a_variant_that_was_selected_serves_slices() {
    let device = Device::cpu().unwrap();
    let variant = select::matmul(&device, 3, 16, 8).unwrap();
    let guards: Vec<_> = variant.guards().iter().map(|guard| (guard.kind, guard.value)).collect();
    assert_eq!(guards, [(ffi::TILEC_GUARD_EQ, 3), (ffi::TILEC_GUARD_EQ, 16), (ffi::TILEC_GUARD_EQ, 8)]);
    let mut exec = Exec::serial().unwrap().with_variant(variant);
    let mut c = [0.0; 3 * 16];
    sample_sys::matmul(&mut exec, &[2.0; 3 * 8], &[3.0; 8 * 16], &mut c, 0.5, 3, 16, 8).unwrap();
    assert_eq!(c, [24.0; 3 * 16]);
    let other = sample_sys::add(&mut exec, &[1.0], &[1.0], &mut c[..1], 1).unwrap_err();
    assert_eq!((other.status, other.name()), (ffi::TILEC_ERR_ARGUMENT, "TILEC_ERR_ARGUMENT"));
}
