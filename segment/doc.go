// Package segment is one segment and everything that can be said of it without
// knowing its neighbours: its name, its rows, the Parquet file that they become,
// the hashes that prove the file, and the place on a node's disk where it lies.
//
// In the order of its life:
//
//   - Name (name.go, filename.go) labels it; Row (row.go) is what the stream gives.
//   - Builder (builder.go) turns rows into a file, the same bytes on every
//     replica; Reader (reader.go) reads it back.
//   - Pieces (pieces.go, sidecar.go) make one Digest (digest.go) prove each 4 MiB
//     of it, whoever sent them; RowsHasher (rows_digest.go) tells equal rows from
//     equal bytes.
//   - Store (store.go) keeps sealed copies through crashes and damage.
//
// It does not know records, locations, replicas or HTTP. Where a segment ends is
// decided in package commit; which copies count, and so which may go, in package
// meta; bytes are moved by peerdl and deepstore.
//
// Start with builder.go for how a segment is made and store.go for how it is kept.
package segment
