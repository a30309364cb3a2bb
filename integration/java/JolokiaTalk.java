// Talks to inbound with Jolokia's own client for Java. Prints one line for each thing asked: `name=answer`.
// Arguments: the address of the agent, a topic of four partitions that it reads, the operator's password.

import java.util.List;
import java.util.TreeSet;
import org.jolokia.client.J4pClient;
import org.jolokia.client.exception.J4pRemoteException;
import org.jolokia.client.request.*;

public class JolokiaTalk {
    public static void main(String[] arguments) throws Exception {
        String channel = "inbound:type=Channel,name=orders", topic = arguments[1];
        J4pClient client = J4pClient.url(arguments[0]).user("operator").password(arguments[2]).build();
        J4pClient reader = new J4pClient(arguments[0]);

        J4pVersionResponse version = client.execute(new J4pVersionRequest());
        say("protocol", version.getProtocolVersion());
        J4pSearchResponse found = client.execute(new J4pSearchRequest("inbound:type=Partition,*"));
        say("partitions", new TreeSet<>(found.getMBeanNames()).size());
        J4pListResponse listed = client.execute(new J4pListRequest("inbound"));
        say("listed", ((java.util.Map<?, ?>) listed.getValue()).containsKey("type=Channel,name=orders"));

        J4pReadRequest share = new J4pReadRequest(channel, "OwnedPartitions");
        for (String method : List.of("GET", "POST")) {
            J4pReadResponse owned = client.execute(share, method);
            say("owned by " + method, owned.<Number>getValue());
        }
        J4pReadResponse several = client.execute(new J4pReadRequest(channel, "Share", "OwnedPartitions"), "POST");
        say("several", new TreeSet<>(several.getAttributes()) + " " + several.<Number>getValue("Share"));
        J4pReadResponse whole = client.execute(new J4pReadRequest(channel));
        say("whole", whole.getAttributes().contains("Group"));
        J4pReadResponse lags = client.execute(new J4pReadRequest("inbound:type=Partition,*", "Lag"));
        say("lags", lags.getObjectNames().size());
        J4pReadRequest inside = new J4pReadRequest(channel, "Topics");
        inside.setPath(topic);
        say("inside", client.<J4pReadResponse, J4pReadRequest>execute(inside, "POST").<Number>getValue());
        List<J4pResponse<J4pRequest>> bulk = client.execute(share, new J4pReadRequest(channel, "Share"));
        say("bulk", bulk.get(0).<Number>getValue() + " " + bulk.get(1).<Number>getValue());

        J4pWriteRequest rate = new J4pWriteRequest(channel, "MaxReadRate", 25.5);
        say("rate before", client.<J4pWriteResponse, J4pWriteRequest>execute(rate).getValue());
        J4pReadResponse now = client.execute(new J4pReadRequest(channel, "MaxReadRate"));
        say("rate after", now.<Number>getValue());
        for (String method : List.of("GET", "POST")) {
            J4pExecResponse resumed = client.execute(new J4pExecRequest(channel, "resume"), method);
            say("resumed by " + method, resumed.<String>getValue().startsWith("orders: was not paused"));
        }
        J4pExecRequest release = new J4pExecRequest(channel, "release(java.lang.String,int)", topic, 1);
        say("released", client.<J4pExecResponse, J4pExecRequest>execute(release, "POST").<String>getValue().contains(topic + "/1"));

        say("missing bean", error(client, new J4pReadRequest("inbound:type=None", "Lag")));
        say("missing attribute", error(client, new J4pReadRequest(channel, "Nope")));
        say("bad argument", error(client, new J4pExecRequest(channel, "release(java.lang.String,int)", topic, "x")));
        say("denied", error(client, new J4pExecRequest(channel, "pauseMember", "why")));
        say("without a password", error(reader, new J4pExecRequest(channel, "resume")));
    }

    private static String error(J4pClient client, J4pRequest request) throws Exception {
        try {
            return "no error: " + client.execute(request).getValue();
        } catch (J4pRemoteException error) {
            return error.getStatus() + " " + error.getErrorType();
        }
    }

    private static void say(String name, Object answer) {
        System.out.println(name + "=" + answer);
    }
}
