package sim

type zookeeper struct{ down bool }

func newZooKeeper(*cluster) *zookeeper         { return nil }
func (z *zookeeper) proc() *process            { return nil }
func (z *zookeeper) expire(p *process) bool    { return false }
func newZooKeeperKeeper(*simController) keeper { return nil }
