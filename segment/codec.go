package segment

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/snappy"
	"github.com/parquet-go/parquet-go/compress/uncompressed"
	parquetzstd "github.com/parquet-go/parquet-go/compress/zstd"
)

// The compressions of a file.
const (
	CompressionZstd = "zstd"
	CompressionNone = "none"
	// CompressionSnappy is not the same bytes on every machine: its encoder is
	// assembly on some. Replicas then differ, and download.
	CompressionSnappy = "snappy"
)

// Codecs have pools of encoders inside, which all builders share.
var (
	codecZstd   = new(zstdCodec)
	codecSnappy = new(snappy.Codec)
	codecNone   = new(uncompressed.Codec)
)

func codec(compression string) (compress.Codec, error) {
	switch compression {
	case "", CompressionZstd:
		return codecZstd, nil
	case CompressionSnappy:
		return codecSnappy, nil
	case CompressionNone:
		return codecNone, nil
	}
	return nil, fmt.Errorf("segment: compression %q is not %s, %s or %s", compression, CompressionZstd, CompressionSnappy, CompressionNone)
}

// zstdCodec is parquet-go's, but for the window: the library's encoders hold
// 8 MiB each, for matches further back than any of our pages is long.
//
// The level is the fastest. On rows of JSON the next one makes files a tenth
// smaller for a quarter more of the builder's whole time.
type zstdCodec struct {
	parquetzstd.Codec // decodes
	encoders          sync.Pool
}

// Encode compresses src into the memory of dst. The result depends on src
// alone, and on the constants here, which are part of WriterVersion.
func (c *zstdCodec) Encode(dst, src []byte) ([]byte, error) {
	e, _ := c.encoders.Get().(*zstd.Encoder)
	if e == nil {
		var err error
		e, err = zstd.NewWriter(nil,
			zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithWindowSize(1<<20),
			zstd.WithLowerEncoderMem(true),
			zstd.WithEncoderConcurrency(1),
			zstd.WithZeroFrames(true),
			zstd.WithEncoderCRC(false), // a page has its own
		)
		if err != nil {
			return nil, err
		}
	}
	defer c.encoders.Put(e)
	return e.EncodeAll(src, dst[:0]), nil
}
