"""Graph convolutions, message passing with gradients, pooling and batches of torch-geometric."""

import torch
import torch_geometric.nn as gnn
from recorded import check, draw, fill
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.utils import segment, softmax, to_dense_adj

edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]])
x = draw("x", 4, 6)
for layer in (
    gnn.GCNConv(6, 5),
    gnn.GATConv(6, 5, heads=2),
    gnn.SAGEConv(6, 5),
    gnn.GINConv(torch.nn.Linear(6, 5)),
    gnn.ChebConv(6, 5, 3),
    gnn.TransformerConv(6, 5),
    gnn.GraphConv(6, 5, aggr="max"),
    gnn.EdgeConv(torch.nn.Linear(12, 5)),
):
    check(type(layer).__name__, fill(layer)(x, edges))


class Doubled(gnn.MessagePassing):
    def __init__(self):
        super().__init__(aggr="add")
        self.layer = torch.nn.Linear(6, 3)

    def forward(self, x, edges):
        return self.propagate(edges, x=self.layer(x))

    def message(self, x_j):
        return 2 * x_j


model = fill(Doubled())
y = model(x, edges)
y.square().sum().backward()
check("message passing", [y, model.layer.weight.grad])
assert torch.allclose(y, 2 * to_dense_adj(edges)[0].T @ model.layer(x), atol=1e-5)
batch = Batch.from_data_list([Data(x=x, edge_index=edges), Data(x=x + 1, edge_index=edges)])
assert torch.allclose(gnn.global_mean_pool(batch.x, batch.batch), torch.stack([x.mean(0), x.mean(0) + 1]))
assert [b.num_graphs for b in DataLoader([Data(x=x, edge_index=edges)] * 3, batch_size=2)] == [2, 1]
chances = softmax(draw("s", 8), edges[0])
assert torch.allclose(torch.zeros(4).index_add(0, edges[0], chances), torch.ones(4))
assert torch.allclose(segment(x, torch.tensor([0, 3, 4]), "mean"), torch.stack([x[:3].mean(0), x[3]]))
