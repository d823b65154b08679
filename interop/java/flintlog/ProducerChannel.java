package flintlog;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPromise;
import io.netty.channel.embedded.EmbeddedChannel;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** A producer's connection without a socket: the broker answers and asks through it, and what it sends is kept. */
final class ProducerChannel {
    final Queue<RemotingCommand> sent = new ConcurrentLinkedQueue<>();
    final EmbeddedChannel channel = new AddressedChannel(new Keeper());

    ChannelHandlerContext context() {
        return channel.pipeline().context(Keeper.class);
    }

    private final class Keeper extends ChannelOutboundHandlerAdapter {
        @Override
        public void write(ChannelHandlerContext context, Object message, ChannelPromise promise) {
            sent.add((RemotingCommand) message);
            promise.setSuccess();
        }
    }

    /** The broker takes a message's birth place from the channel, and expects an internet address there. */
    private static final class AddressedChannel extends EmbeddedChannel {
        AddressedChannel(Keeper keeper) {
            super(keeper);
        }

        @Override
        protected SocketAddress remoteAddress0() {
            return new InetSocketAddress("127.0.0.1", 10911);
        }
    }
}
