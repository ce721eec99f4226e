package segment

import (
	"bufio"
	"crypto/sha256"
	"hash"
	"io"
)

// hashingWriter writes a file and computes what identifies it on the way, so
// that the seal reads nothing back. Hashing is done here, not on a goroutine of
// its own: of the compressed bytes it is a few percent of the builder's time.
type hashingWriter struct {
	buf    *bufio.Writer // in front of file and hashes
	size   int64         // written, buffered or not
	file   io.Writer
	pieces PieceHasher
	sha    hash.Hash
}

const fileBuffer = 256 << 10

func newHashingWriter(file io.Writer) *hashingWriter {
	w := &hashingWriter{file: file, sha: sha256.New()}
	w.buf = bufio.NewWriterSize((*unbuffered)(w), fileBuffer)
	return w
}

func (w *hashingWriter) Write(b []byte) (int, error) {
	n, err := w.buf.Write(b)
	w.size += int64(n)
	return n, err
}

// finish writes what is buffered and returns the identity of the file.
func (w *hashingWriter) finish() (pieces *Pieces, digest Digest, sum SHA256, err error) {
	if err := w.buf.Flush(); err != nil {
		return nil, Digest{}, SHA256{}, err
	}
	pieces, digest = w.pieces.Sum()
	w.sha.Sum(sum[:0])
	return pieces, digest, sum, nil
}

// unbuffered is the hashingWriter behind its buffer.
type unbuffered hashingWriter

func (w *unbuffered) Write(b []byte) (int, error) {
	n, err := w.file.Write(b)
	_, _ = w.pieces.Write(b[:n]) // hashes never fail
	_, _ = w.sha.Write(b[:n])
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return n, err
}
